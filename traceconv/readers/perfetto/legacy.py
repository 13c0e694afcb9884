"""Events of Chrome's older format within TrackEvents: a phase, ids, overrides.

A phase decides what an event is and where: on the thread, on that of an asynchronous operation
(by id and scope), on the process, or on the whole trace.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from traceconv.protobuf.message import Field, Value, last_values, message, number, signed, signed32
from traceconv.protobuf.perfetto_schema import (
    INSTANT,
    SLICE_BEGIN,
    SLICE_END,
    LegacyEvent,
    TrackEvent,
)
from traceconv.readers.perfetto.state import State
from traceconv.readers.perfetto.tracks import Descriptors, Key, thread_key, track_key

FLOW_AROUND, FLOW_NEXT = 7, 8
"""Kinds of events: an end of a flow, at the slice around it or at the next one to begin."""

_KINDS = {
    **dict.fromkeys("BbS", SLICE_BEGIN),
    **dict.fromkeys("EeF", SLICE_END),
    **dict.fromkeys("IRinTp", INSTANT),
}
_ASYNC, _BY_NAME = "bSTpFne", "STpF"
_FLOW_ACTS = {"s": "begin", "t": "step", "f": "end"}
_DIRECTIONS = {1: "end", 2: "begin", 3: "step"}
_GLOBAL, _PROCESS = 1, 2
_IDS = (LegacyEvent.UNSCOPED_ID, LegacyEvent.GLOBAL_ID, LegacyEvent.LOCAL_ID)


class FlowEnd(NamedTuple):
    """One end of a flow: an event, an id, and what it does with it: "begin", "step" or "end"."""

    mark: int
    flow: Hashable
    act: str


@dataclass(frozen=True)
class Old:
    """What an event is.

    Attributes:
        kind:   of mark; None for that of its type.
        dur_ns: its length, -1 if it has none.
        key:    what it is stacked by, if that is not the track it names.
        by_name: an asynchronous operation is told from others by its name, else by its category.
        flow:   id and act of an end of a flow; see :class:`FlowEnd`.
    """

    kind: int | None = None
    dur_ns: int = -1
    key: Key | None = None
    by_name: bool = False
    name_iid: int = 0
    flow: tuple[Hashable, str] | None = None


def read(event_fields: list[Field], state: State, descriptors: Descriptors, kind: int) -> Old | str:
    """What an event with a LegacyEvent is.

    Args:
        event_fields: fields of the TrackEvent.
        kind:  of mark, by its type; 0 if it has none.

    Returns:
        That, or the issue it is booked under.
    """
    event = {n: v for n, _, v in event_fields}
    old_event = last_values(event[TrackEvent.LEGACY_EVENT])
    own_thread = _thread(event, old_event, state, kind)
    key = None if own_thread is None else thread_key(state.machine, *own_thread)
    phase = (
        chr(signed32(old_event[LegacyEvent.PHASE]) & 0x7F) if LegacyEvent.PHASE in old_event else ""
    )
    name_iid = number(old_event.get(LegacyEvent.NAME_IID, 0))
    flow = _flow(old_event)
    if kind or not phase:
        return Old(None, -1, key, name_iid=name_iid, flow=flow)
    if phase == "X":
        dur = signed(old_event.get(LegacyEvent.DURATION_US, 0)) * 1000
        if dur < 0:
            return "negative-duration"
        return Old(SLICE_BEGIN, min(dur, 2**62), key, name_iid=name_iid, flow=flow)
    if phase in _FLOW_ACTS:
        ids = [(n, number(old_event[n])) for n in _IDS if n in old_event]
        if not ids:
            return "malformed-record"
        waits = phase == "f" and not number(old_event.get(LegacyEvent.BIND_TO_ENCLOSING, 0))
        kind = FLOW_NEXT if waits else FLOW_AROUND
        return Old(kind, -1, key, name_iid=name_iid, flow=(ids[0], _FLOW_ACTS[phase]))
    if phase == "M":
        return "metadata-unused"
    if phase not in _KINDS:
        return "unknown-phase"
    thread = own_thread or _thread_of(event, state, descriptors)
    if phase in _ASYNC:
        key = _operation(old_event, state, thread)
    elif phase in "Ii":
        scope = number(old_event.get(LegacyEvent.INSTANT_EVENT_SCOPE, 0))
        if scope == _GLOBAL:
            key = ("instants", state.machine)
        elif scope == _PROCESS and thread is not None:
            key = ("instants", state.machine, thread[0])
    return Old(_KINDS[phase], -1, key, phase in _BY_NAME, name_iid, flow)


def _thread(
    event: dict[int, Value], old_event: dict[int, Value], state: State, kind: int
) -> tuple[int, int] | None:
    """The thread an event is on although it names no track, or names the root."""
    uuid = number(event.get(TrackEvent.TRACK_UUID, state.track or 0))
    if uuid:
        return None
    process, thread = (
        old_event.get(LegacyEvent.PID_OVERRIDE),
        old_event.get(LegacyEvent.TID_OVERRIDE),
    )
    falls_back = (TrackEvent.TRACK_UUID not in event or not kind) and state.thread is not None
    falls_back |= process is not None or (thread is not None and state.thread is not None)
    if not falls_back:
        return None
    pid, tid = state.thread or (0, 0)
    if process is not None:
        pid, tid = signed32(process), -1
    return pid, tid if thread is None else signed32(thread)


def _thread_of(
    event: dict[int, Value], state: State, descriptors: Descriptors
) -> tuple[int, int] | None:
    """The thread of the track an event names, else that of its sequence."""
    uuid = number(event.get(TrackEvent.TRACK_UUID, state.track or 0))
    descriptor = descriptors.of(track_key(state.machine, uuid))
    if descriptor is not None and descriptor.pid is not None:
        return descriptor.pid, descriptor.pid if descriptor.tid is None else descriptor.tid
    return state.thread


def _operation(
    old_event: dict[int, Value], state: State, thread: tuple[int, int] | None
) -> Key | None:
    """What parts of an asynchronous operation have in common."""
    scope = message(old_event.get(LegacyEvent.ID_SCOPE, b"")).decode("utf-8", "replace")
    for n in (LegacyEvent.UNSCOPED_ID, LegacyEvent.GLOBAL_ID):
        if n in old_event:
            return ("async", state.machine, -1, number(old_event[n]), scope)
    if LegacyEvent.LOCAL_ID in old_event and thread is not None:
        return ("async", state.machine, thread[0], number(old_event[LegacyEvent.LOCAL_ID]), scope)
    return None


def _flow(old_event: dict[int, Value]) -> tuple[int, str] | None:
    """The end of a flow that an event has besides what it is."""
    act = _DIRECTIONS.get(number(old_event.get(LegacyEvent.FLOW_DIRECTION, 0)))
    if act is None or LegacyEvent.BIND_ID not in old_event:
        return None
    return number(old_event[LegacyEvent.BIND_ID]), act
