"""The events of a Perfetto file as columns, between the first pass and the building of slices."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from traceconv.validation.perfetto.frames import Packets
from traceconv.validation.perfetto.sequences import Generation
from traceconv.validation.perfetto.tracks import Descriptors, TrackKey

BEGIN, END, INSTANT, COUNTER, STATE, GPU = 1, 2, 3, 4, 5, 6
"""Kinds of events."""


class Shape(NamedTuple):
    """Everything of an event but its time.

    Attributes:
        kind:       :data:`BEGIN` ... :data:`GPU`.
        track:      key of its track.
        name:       text, None, or the id it waits for.
        categories: texts, or ids they wait for.
        generation: index of the interned data it refers to.
    """

    kind: int
    track: TrackKey
    name: str | int | None
    categories: tuple[str | int, ...]
    generation: int


@dataclass
class Tokens:
    """The events of a file, in file order.

    Attributes:
        ts, shape, place: one entry per event: ns, index into ``shapes``, place of its packet.
        flow_event, flow_id, flow_ends: one entry per flow id of an event (its number, the id, and
            whether it terminates the flow).
        counter_ts, counter_track, counter_value: samples; the track indexes ``counter_tracks``.
        gpu_links: event number to (submitted, awaited) GPU event ids.
    """

    packets: Packets
    descriptors: Descriptors
    ts: array[int] = field(default_factory=lambda: array("q"))
    shape: array[int] = field(default_factory=lambda: array("i"))
    place: array[int] = field(default_factory=lambda: array("q"))
    shapes: dict[Shape, int] = field(default_factory=dict)
    flow_event: array[int] = field(default_factory=lambda: array("q"))
    flow_id: array[int] = field(default_factory=lambda: array("Q"))
    flow_ends: array[int] = field(default_factory=lambda: array("b"))
    counter_ts: array[int] = field(default_factory=lambda: array("q"))
    counter_track: array[int] = field(default_factory=lambda: array("i"))
    counter_value: array[float] = field(default_factory=lambda: array("d"))
    counter_tracks: dict[tuple[int, int], int] = field(default_factory=dict)
    gpu_links: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)
    machines: set[int] = field(default_factory=set)
    attributes: dict[str, Any] = field(default_factory=dict)
    _in_order: list[Shape] = field(default_factory=list)
    awaited: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """(generation, table, id) that arguments used before it was defined: how often."""

    def add(self, ts: int, shape: Shape, place: int) -> int:
        """Append an event; its number."""
        self.ts.append(ts)
        self.shape.append(self.shapes.setdefault(shape, len(self.shapes)))
        self.place.append(place)
        return len(self.ts) - 1

    def shape_at(self, event: int) -> Shape:
        """The shape of an event."""
        if len(self._in_order) != len(self.shapes):
            self._in_order = list(self.shapes)
        return self._in_order[self.shape[event]]

    def sample(self, ts: int, track: tuple[int, int], value: float) -> None:
        """Append a counter sample."""
        self.counter_ts.append(ts)
        known = self.counter_tracks.setdefault(track, len(self.counter_tracks))
        self.counter_track.append(known)
        self.counter_value.append(value)
