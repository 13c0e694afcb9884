"""Packets of other data sources: ftrace, samples of CPUs, memory, power ...

They do not belong to a rank, so they are counted. Packets that viewers show can be passed on as
bytes, beside the ranks (:func:`passed_on`). What tells of the user is taken out or left behind:
arguments of commands, folders of files, logs, packages, properties, configurations, user ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Mask
from traceconv.core.source import Source
from traceconv.core.version import __version__
from traceconv.protobuf.message import (
    BrokenMessage,
    Field,
    encoded,
    fields,
    message,
    whole_fields,
)
from traceconv.protobuf.message_columns import OTHERS, columns
from traceconv.protobuf.perfetto_schema import (
    OWN_FIELD,
    PACKET,
    STATE_CLEARED,
    STRING,
    SYSTEM_DATA,
    Attribute,
    TracePacket,
)
from traceconv.readers.perfetto.packets import FIELDS, Packets, packets

KINDS = {
    1: "ftrace_events", 2: "process_tree", 4: "inode_file_map", 5: "chrome_events", 7: "sys_stats",
    9: "process_stats", 33: "trace_config", 34: "ftrace_stats", 35: "trace_stats",
    36: "synchronization_marker", 37: "profile_packet", 38: "battery", 39: "android_log",
    40: "power_rails", 45: "system_info", 46: "trigger", 47: "packages_list",
    48: "chrome_benchmark_metadata", 49: "perfetto_metatrace", 51: "chrome_metadata",
    54: "streaming_profile_packet", 55: "profiled_frame_symbols", 56: "heap_graph",
    57: "graphics_frame_event", 61: "module_symbols", 62: "vulkan_memory_event", 63: "gpu_log",
    64: "deobfuscation_mapping", 65: "vulkan_api_event", 66: "perf_sample", 67: "cpu_info",
    68: "smaps_packet", 69: "service_event", 70: "initial_display_state", 71: "gpu_mem_total_event",
    72: "extension_descriptor", 73: "memory_tracker_snapshot", 74: "streaming_allocation",
    75: "streaming_free", 76: "frame_timeline_event", 77: "android_energy_estimation_breakdown",
    78: "ui_state", 80: "android_camera_frame_event", 81: "android_camera_session_stats",
    82: "translation_table", 83: "android_game_intervention_list", 84: "statsd_atom",
    86: "android_system_property", 88: "network_packet", 89: "trace_uuid",
    90: "track_event_range_of_interest", 91: "entity_state_residency", 92: "network_packet_bundle",
    93: "surfaceflinger_layers_snapshot", 94: "surfaceflinger_transactions", 95: "etw_events",
    96: "shell_transition", 97: "shell_handler_mappings", 99: "v8_js_code",
    100: "v8_internal_code", 101: "v8_wasm_code", 102: "v8_reg_exp_code", 103: "v8_code_move",
    104: "protolog_message", 105: "protolog_viewer_config", 106: "android_input_event",
    107: "remote_clock_sync", 109: "chrome_trigger", 110: "pixel_modem_events",
    111: "pixel_modem_token_database", 112: "winscope_extensions", 113: "clone_snapshot_trigger",
    114: "bluetooth_trace_event", 115: "kernel_wakelock_data", 116: "app_wakelock_bundle",
    117: "generic_kernel_task_state_event", 118: "generic_kernel_cpu_freq_event",
    119: "cpu_per_uid_data", 120: "generic_kernel_task_rename_event", 121: "evdev_event",
    122: "generic_kernel_process_tree", 123: "user_list", 124: "trace_provenance", 125: "protovms",
    127: "android_aflags", 128: "gpu_info", 129: "generic_gpu_frequency_event",
    130: "interrupt_info", 131: "art_process_metadata", 132: "journald_event",
    134: "concurrent_session_event", 135: "stack_sample", 138: "recovered_trace_info",
    139: "source_file", 140: "module_disassembly", 900: "for_testing",
}  # fmt: skip
"""Names of kinds of packets that are not read: all of ``trace_packet.proto`` (2026-11) and of
Android's extensions that it lists."""

DESCRIPTIVE = frozenset((33, 34, 35, 36, 46, 69, 72, 89, 90, 109, 113, 124, 134, 138))
"""Fields of packets that describe how a trace was recorded."""

_EVENTS = (
    *(TracePacket.TRACK_EVENT, TracePacket.GPU_RENDER_STAGE_EVENT, TracePacket.GPU_COUNTER_EVENT),
    *(TracePacket.TRACK_DESCRIPTOR, TracePacket.TRACE_ATTRIBUTES, OWN_FIELD),
)
"""Packets with one of these are read."""

_STATE = (
    *(TracePacket.CLOCK_SNAPSHOT, TracePacket.INTERNED_DATA, TracePacket.TRACE_PACKET_DEFAULTS),
    *(TracePacket.INCREMENTAL_STATE_CLEARED, TracePacket.PREVIOUS_PACKET_DROPPED),
    TracePacket.THREAD_DESCRIPTOR,
)
"""What later packets of a sequence refer to."""

_STATE_OR_READ = (*_EVENTS, *_STATE, TracePacket.PROCESS_DESCRIPTOR)

_AT_ONCE = 60
"""Fields that are looked for at a time."""

_OF_WRITER = (3, 79, 87)
"""Fields about the writer of a packet: trusted_uid, trusted_pid and first_packet_on_sequence."""

_KEPT = (
    *(TracePacket.TIMESTAMP, TracePacket.TRUSTED_PACKET_SEQUENCE_ID, TracePacket.SEQUENCE_FLAGS),
    *(TracePacket.TIMESTAMP_CLOCK_ID, TracePacket.MACHINE_ID, *_STATE),
)
_PASSED_FIELDS = SYSTEM_DATA.union(map(int, _KEPT))

OTHERS_NS = "packets_ns"
"""Attribute of a file that holds nothing else: what to add to its stamps for those of the run."""

_PROCESS_TREE, _PROCESS_STATS = 2, 9
_PROCESSES, _COMMAND, _FILES = 1, 3, 15
_FOLDERS = (17, 18)
"""Tables of InternedData with paths of mappings and of sources."""

_OF_EVENTS = frozenset((1, 2, 3, 4, 25, 27, 29))
"""Interned data that TrackEvents refer to."""


Change = Callable[[list[Field]], list[Field]]


class Unread:
    """Counts packets of other data sources, by kind."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._descriptive: Counter[str] = Counter()

    def take(self, batch: Packets) -> None:
        """Count those among some packets."""
        batch = batch.take(_others(batch))
        if not len(batch):
            return
        is_known = np.zeros(len(batch), bool)
        for number_ in _STATE_OR_READ:
            is_known |= batch.columns.has(number_)
        numbers = list(KINDS)
        for begin in range(0, len(numbers), _AT_ONCE):
            asked_numbers = numbers[begin : begin + _AT_ONCE]
            packet_columns = columns(batch.data, batch.start, batch.size, asked_numbers)
            for number_ in asked_numbers:
                has = packet_columns.has(number_)
                counts = self._descriptive if number_ in DESCRIPTIVE else self.kinds
                counts[KINDS[number_]] += int(has.sum())
                is_known |= has
        for row in np.flatnonzero(~is_known).tolist():
            further = {n for n, _, _ in whole_fields(batch.bytes_of(row))}
            self.kinds.update(f"field {n}" for n in further.difference(FIELDS, _OF_WRITER))

    def book(self, build: TraceBuilder) -> None:
        """Book what was counted."""
        for counts, suffix in ((self.kinds, ""), (self._descriptive, " (describes the recording)")):
            listed = ", ".join(f"{name}: {count}" for name, count in sorted((+counts).items()))
            build.skip("perfetto-packet-unread", listed + suffix, counts.total())

    def text(self) -> str:
        """The kinds that do not describe the recording, for a message."""
        return ", ".join(f"{name} ({count})" for name, count in self.kinds.items() if count)


def _others(batch: Packets) -> Mask:
    """Which packets hold data of other sources."""
    is_other: Mask = (batch.columns.rest & OTHERS) > 0
    for number_ in _EVENTS:
        is_other &= ~batch.columns.has(number_)
    return is_other


def passed_on(source: Source, name: str, shift_ns: int, issues: Issues) -> Iterator[bytes]:
    """The packets of a file that viewers show next to ranks, as a separate trace, in blocks.

    Clocks, interned data and what else they refer to go with them. Damage was booked when the file
    was read, so it is passed over here.

    Args:
        shift_ns: what puts its stamps on the clock of the run.
        issues: gets how many there are of each kind, as ``perfetto-packet-beside``.

    Raises:
        SourceError: the file cannot be read any more.
    """
    version = encoded(
        1,
        encoded(Attribute.KEY, b"traceconv.version")
        + encoded(Attribute.STRING_VALUE, __version__.encode()),
    )
    shift = encoded(
        1,
        encoded(Attribute.KEY, f"traceconv.{OTHERS_NS}".encode())
        + encoded(Attribute.LONG_VALUE, shift_ns),
    )
    yield encoded(PACKET, encoded(TracePacket.TRACE_ATTRIBUTES, version + shift))
    kinds: Counter[str] = Counter()
    for batch in packets(source, name, TraceBuilder.of_rank(0)):
        state = (batch.columns.integer(TracePacket.SEQUENCE_FLAGS) & STATE_CLEARED) > 0
        for number_ in _STATE:
            state |= batch.columns.has(number_)
        block = []
        for row in np.flatnonzero(_others(batch) | state).tolist():
            packet_fields = _passed_fields_of(batch.bytes_of(row))
            if packet_fields is not None:
                kinds.update(KINDS[n] for n, _, _ in packet_fields if n in SYSTEM_DATA)
                block.append(encoded(PACKET, _message(packet_fields)))
        yield b"".join(block)
    listed = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))
    issues.add("perfetto-packet-beside", source.title(name), listed, kinds.total())


def _passed_fields_of(raw: bytes) -> list[Field] | None:
    """The fields of a packet that are passed on; None if that is nothing."""
    try:
        packet_fields = [
            packet_field for packet_field in fields(raw) if packet_field[0] in _PASSED_FIELDS
        ]
    except BrokenMessage:
        return None
    if not any(
        n in SYSTEM_DATA or n in _STATE or n == TracePacket.SEQUENCE_FLAGS
        for n, _, _ in packet_fields
    ):
        return None
    return [(n, w, _trimmed(n, v)) for n, w, v in packet_fields]


def _trimmed(kind: int, value: int | bytes) -> int | bytes:
    """The content of a field without data that may identify the user."""
    if kind == _PROCESS_TREE:
        return _inside(value, (_PROCESSES,), _without_command)
    if kind == _PROCESS_STATS:
        return _inside(value, (_PROCESSES,), lambda process: [f for f in process if f[0] != _FILES])
    if kind == TracePacket.INTERNED_DATA:
        own_fields = [(n, w, v) for n, w, v in whole_fields(value) if n not in _OF_EVENTS]
        return _inside(
            _message(own_fields),
            _FOLDERS,
            lambda entry: [(n, w, _last_name(v) if n == STRING else v) for n, w, v in entry],
        )
    return value


def _inside(value: int | bytes, numbers: tuple[int, ...], change: Change) -> bytes:
    """A message whose nested messages of these numbers are changed."""
    changed = (
        (n, w, _message(change(whole_fields(inner))))
        if n in numbers and isinstance(inner, bytes)
        else (n, w, inner)
        for n, w, inner in whole_fields(value)
    )
    return _message(changed)


def _message(message_fields: Iterable[Field]) -> bytes:
    return b"".join(encoded(n, v, w) for n, w, v in message_fields)


def _without_command(process: list[Field]) -> list[Field]:
    """The program alone, without its folder: arguments may be secrets."""
    trimmed: list[Field] = []
    program = False
    for n, wire, value in process:
        if n == _COMMAND:
            if not program:
                trimmed.append((n, wire, _last_name(value)))
            program = True
        else:
            trimmed.append((n, wire, value))
    return trimmed


def _last_name(path: int | bytes) -> bytes:
    return message(path).replace(b"\\", b"/").rsplit(b"/", 1)[-1]
