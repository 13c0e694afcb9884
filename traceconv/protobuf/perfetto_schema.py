"""Perfetto traces: the numbers of the messages and fields that are written and read here.

``schemas/proto/perfetto_trace.proto`` describes the messages. Fields of our own, which no viewer
knows and so all pass over, are in classes whose names begin with ``Own``, described in
``schemas/proto/traceconv_rank.proto``.
"""

from __future__ import annotations


def numbers(message: type) -> dict[str, int]:
    """The fields of one of the classes below by name.

    They are plain classes, as every merge to Perfetto defines them all: enumerations cost more.
    """
    return {name: number for name, number in vars(message).items() if name.isupper()}


class TracePacket:
    """Field numbers, as in all classes below."""

    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    TRUSTED_PACKET_SEQUENCE_ID = 10
    TRACK_EVENT = 11
    INTERNED_DATA = 12
    SEQUENCE_FLAGS = 13
    INCREMENTAL_STATE_CLEARED = 41
    PREVIOUS_PACKET_DROPPED = 42
    PROCESS_DESCRIPTOR = 43
    THREAD_DESCRIPTOR = 44
    COMPRESSED_PACKETS = 50
    GPU_COUNTER_EVENT = 52
    GPU_RENDER_STAGE_EVENT = 53
    TIMESTAMP_CLOCK_ID = 58
    TRACE_PACKET_DEFAULTS = 59
    TRACK_DESCRIPTOR = 60
    MACHINE_ID = 98
    TRACE_ATTRIBUTES = 126
    ZSTD_COMPRESSED_PACKETS = 133


SYSTEM_DATA = frozenset(
    (1, 2, 7, 9, 37, 38, 40, 54, 56, 57, 61, 64, 66, 67, 68, 70, 71, 72, 73, 74, 75, 76, 77, 82,
     91, 117, 118, 120, 128, 129, 130, 135)
)  # fmt: skip
"""Fields with data of other sources that viewers show: ftrace, samples of CPUs, memory, power ...
Fields that may identify the user are left out: logs, packages, properties, configurations."""


class ClockSnapshot:
    """Readings of several clocks at one instant."""

    CLOCKS = 1
    PRIMARY_TRACE_CLOCK = 2


class Clock:
    """One of these readings."""

    CLOCK_ID = 1
    TIMESTAMP = 2
    IS_INCREMENTAL = 3
    UNIT_MULTIPLIER_NS = 4


class TracePacketDefaults:
    """What packets of a sequence have where they say nothing."""

    TRACK_EVENT_DEFAULTS = 11
    TIMESTAMP_CLOCK_ID = 58


class TrackEventDefaults:
    """What events of a sequence have where they say nothing."""

    TRACK_UUID = 11
    EXTRA_COUNTER_TRACK_UUIDS = 31
    EXTRA_DOUBLE_COUNTER_TRACK_UUIDS = 45


class TrackDescriptor:
    """One row of the viewer."""

    UUID = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT_UUID = 5
    COUNTER = 8
    STATIC_NAME = 10
    CHILD_ORDERING = 11
    SIBLING_ORDER_RANK = 12
    ATRACE_NAME = 13
    DESCRIPTION = 14
    SIBLING_MERGE_BEHAVIOR = 15
    SIBLING_MERGE_KEY = 16
    SIBLING_MERGE_KEY_INT = 17
    STATE = 18
    PROCESS_ORDERING = 19
    THREAD_ORDERING = 20


class ProcessDescriptor:
    """What makes a track a process."""

    PID = 1
    PROCESS_NAME = 6
    PROCESS_LABELS = 8


class ThreadDescriptor:
    """What makes a track a thread."""

    PID = 1
    TID = 2
    THREAD_NAME = 5
    REFERENCE_TIMESTAMP_US = 6
    REFERENCE_THREAD_TIME_US = 7
    REFERENCE_THREAD_INSTRUCTION_COUNT = 8


class CounterDescriptor:
    """What makes a track a counter."""

    TYPE = 1
    UNIT = 3
    UNIT_MULTIPLIER = 4
    IS_INCREMENTAL = 5
    UNIT_NAME = 6
    Y_AXIS_SHARE_KEY = 7


class Attribute:
    """One key of the trace's metadata."""

    KEY = 1
    LONG_VALUE = 2
    STRING_VALUE = 3


class TrackEvent:
    """One event on a track."""

    TIMESTAMP_DELTA_US = 1
    THREAD_TIME_DELTA_US = 2
    CATEGORY_IIDS = 3
    DEBUG_ANNOTATIONS = 4
    LEGACY_EVENT = 6
    THREAD_INSTRUCTION_COUNT_DELTA = 8
    TYPE = 9
    NAME_IID = 10
    TRACK_UUID = 11
    EXTRA_COUNTER_VALUES = 12
    TIMESTAMP_ABSOLUTE_US = 16
    THREAD_TIME_ABSOLUTE_US = 17
    THREAD_INSTRUCTION_COUNT_ABSOLUTE = 20
    CATEGORIES = 22
    NAME = 23
    COUNTER_VALUE = 30
    EXTRA_COUNTER_TRACK_UUIDS = 31
    FLOW_IDS_OLD = 36
    TERMINATING_FLOW_IDS_OLD = 42
    DOUBLE_COUNTER_VALUE = 44
    EXTRA_DOUBLE_COUNTER_TRACK_UUIDS = 45
    EXTRA_DOUBLE_COUNTER_VALUES = 46
    FLOW_IDS = 47
    TERMINATING_FLOW_IDS = 48
    CORRELATION_ID = 52
    CORRELATION_ID_STR = 53
    CORRELATION_ID_STR_IID = 54


GPU_CORRELATION = 3000
"""An extension of :class:`TrackEvent`: the GPU events a call submits and awaits."""


class LegacyEvent:
    """How Chrome's older events are written into a TrackEvent."""

    NAME_IID = 1
    PHASE = 2
    DURATION_US = 3
    UNSCOPED_ID = 6
    ID_SCOPE = 7
    BIND_ID = 8
    LOCAL_ID = 10
    GLOBAL_ID = 11
    BIND_TO_ENCLOSING = 12
    FLOW_DIRECTION = 13
    INSTANT_EVENT_SCOPE = 14
    PID_OVERRIDE = 18
    TID_OVERRIDE = 19


class InternedData:
    """Strings that packets refer to by number."""

    EVENT_CATEGORIES = 1
    EVENT_NAMES = 2
    DEBUG_ANNOTATION_NAMES = 3
    GRAPHICS_CONTEXTS = 23
    GPU_SPECIFICATIONS = 24
    DEBUG_ANNOTATION_STRING_VALUES = 29
    CORRELATION_ID_STR = 43
    GPU_COUNTER_DESCRIPTORS = 47


class DebugAnnotation:
    """One argument of an event."""

    NAME_IID = 1
    BOOL_VALUE = 2
    UINT_VALUE = 3
    INT_VALUE = 4
    DOUBLE_VALUE = 5
    STRING_VALUE = 6
    POINTER_VALUE = 7
    LEGACY_JSON_VALUE = 9
    NAME = 10
    DICT_ENTRIES = 11
    ARRAY_VALUES = 12
    STRING_VALUE_IID = 17


class GpuRenderStageEvent:
    """One interval of work of a GPU."""

    EVENT_ID = 1
    DURATION = 2
    HW_QUEUE_ID = 3
    STAGE_ID = 4
    CONTEXT = 5
    EXTRA_DATA = 6
    SUBMISSION_ID = 10
    GPU_ID = 11
    HW_QUEUE_IID = 13
    STAGE_IID = 14
    NAME = 17
    EVENT_WAIT_IDS = 18
    KERNEL_IID = 19
    NAME_IID = 20
    LAUNCH = 21


class GpuCounterEvent:
    """Samples of a GPU's counters."""

    COUNTER_DESCRIPTOR = 1
    COUNTERS = 2
    GPU_ID = 3
    COUNTER_DESCRIPTOR_IID = 4


GPU_KERNELS, GPU_KERNEL_ARGUMENTS = 1000, 1001
"""Extensions of :class:`InternedData`: kernels, and names of their launch arguments."""


PACKET = 1
"""The only field of ``Trace``."""

SLICE_BEGIN, SLICE_END, INSTANT, COUNTER, STATE = 1, 2, 3, 4, 5
"""Values of ``TrackEvent.type``."""

STATE_CLEARED, NEEDS_STATE = 1, 2
"""Values of ``TracePacket.sequence_flags``."""

ATTRIBUTE = 1
"""The only field of ``TraceAttributes``."""

IID, STRING = 1, 2
"""Fields of every kind of interned string."""

OWN_FIELD = 1990
"""The number of all fields of our own: in packets it is among those for extensions, and no message
of Perfetto has it. Viewers pass over it.

* In a TracePacket: what only we know of a rank, see ``schemas/proto/traceconv_rank.proto``.
* In entries of interned names and strings of arguments, and in a DebugAnnotation with a string:
  the JSON text the string stands for, where that is another than the string in quotes.
* In a DebugAnnotation with a double: how many decimals it was written with, where that is not as
  few as tell it from other numbers.
"""
