"""Perfetto: packets, and fields of TrackEvents; trace-event JSON: phases and fields."""

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from tests.census import COUNTED, DESCRIBES, READ, Inventory
from traceconv.readers.perfetto import events, others, packets
from traceconv.readers.shared.trace_events import event_records, tables

_PROTOS = "protos/perfetto/trace of google/perfetto, as the package perfetto 0.59.1 has them"
_ANDROID = "56 76 88 92 93 94 96 97 104 105 112 114 116 121"
"""Numbers of Android's extensions that ``trace_packet.proto`` lists."""

_DESCRIBES = """
clock_snapshot timestamp timestamp_clock_id trusted_packet_sequence_id trusted_uid trusted_pid
first_packet_on_sequence machine_id sequence_flags incremental_state_cleared
previous_packet_dropped trace_packet_defaults interned_data track_descriptor process_descriptor
thread_descriptor trace_attributes
"""


def _fields(message: str) -> dict[str, int]:
    described = getattr(perfetto_trace_pb2, message).DESCRIPTOR
    return {field.name: field.number for field in described.fields}


_PACKETS = _fields("TracePacket") | {others.KINDS[int(n)]: int(n) for n in _ANDROID.split()}
_EVENTS = _fields("TrackEvent")


def _packet(name: str) -> str:
    if name in _DESCRIBES.split():
        return DESCRIBES
    return READ if _PACKETS[name] in packets.FIELDS else COUNTED


def _event(name: str) -> str:
    return READ if _EVENTS[name] in events.FIELDS else COUNTED


_TRACE_EVENTS = "Trace Event Format (Google Docs 1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU)"

PHASES = "B E X i I R C b n e S T p F s t f P N O D M V v c ( ) , ="
FIELDS = """
name cat ph ts dur tts tdur pid tid args id id2 bp cname s sf stack esf estack scope bind_id flow_in
flow_out tidelta ticount use_async_tts
"""


def _phase(name: str) -> str:
    kind = tables.PHASES.get(name, tables.UNKNOWN)
    return {tables.METADATA: DESCRIBES, tables.UNKNOWN: COUNTED}.get(kind, READ)


def _field(name: str) -> str:
    known = {*event_records.Event.__struct_fields__, "flow_in", "flow_out", "s"}
    return READ if name in known else COUNTED


INVENTORIES = (
    Inventory(
        "chrome_json", "phases of events", _TRACE_EVENTS, "2026-11", tuple(PHASES.split()), _phase
    ),
    Inventory(
        "chrome_json",
        "fields of events (in files of any tool, slices and instants keep those not read as the "
        "argument trace_event)",
        _TRACE_EVENTS,
        "2026-11",
        tuple(FIELDS.split()),
        _field,
    ),
    Inventory(
        "perfetto",
        "fields of TracePacket",
        _PROTOS,
        "2026-11",
        tuple(_PACKETS),
        _packet,
        [name for n, name in others.KINDS.items() if n in _PACKETS.values()],
    ),
    Inventory(
        "perfetto",
        "fields of TrackEvent",
        _PROTOS,
        "2026-11",
        tuple(_EVENTS),
        _event,
        tuple(events.UNREAD.values()),
    ),
)
