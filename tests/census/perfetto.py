"""Perfetto: packets, and fields of TrackEvents."""

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from tests.census import COUNTED, DESCRIBES, READ, Inventory
from traceconv.protobuf.perfetto_schema import TrackDescriptor
from traceconv.readers.perfetto import events, others, packets
from traceconv.readers.perfetto.tracks import UNREAD

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


_DESCRIPTORS = {
    "TrackDescriptor": 0,
    "ProcessDescriptor": TrackDescriptor.PROCESS,
    "ThreadDescriptor": TrackDescriptor.THREAD,
    "CounterDescriptor": TrackDescriptor.COUNTER,
}


def _descriptor(message: str, place: int) -> Inventory:
    """The fields of a message that describes tracks."""
    numbers, unread = _fields(message), UNREAD[place]
    return Inventory(
        "perfetto",
        f"fields of {message}",
        _PROTOS,
        "2026-11",
        tuple(numbers),
        lambda name: COUNTED if numbers[name] in unread else DESCRIBES,
        tuple(unread.values()),
    )


INVENTORIES = (
    *(_descriptor(message, place) for message, place in _DESCRIPTORS.items()),
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
