"""GpuRenderStageEvent: device slices of known length, in rows of their hardware queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from traceconv.validation.flows import FlowBook
from traceconv.validation.perfetto.columns import Tokens
from traceconv.validation.perfetto.decoded import Argument, TrackRow
from traceconv.validation.perfetto.sequences import EVENT_NAMES, GPU_SPECIFICATIONS, Generation
from traceconv.validation.perfetto.tracks import Tracks
from traceconv.validation.perfetto.wire import (
    Value,
    message,
    number,
    packed,
    signed,
    text,
    whole_fields,
)
from traceconv.validation.slices import NONE, Labels, SliceBook, SpanLanes
from traceconv.validation.tally import Tally

_FIELD = 53


@dataclass
class Stage:
    """The fields of one GpuRenderStageEvent."""

    last: dict[int, Value]
    waits: list[int]
    extra: list[tuple[str, str]]

    def integer(self, n: int) -> int:
        """An integer field, 0 where it is unset."""
        return number(self.last.get(n, 0))


def _stage(packet: bytes) -> Stage:
    whole = {n: v for n, _, v in whole_fields(packet)}
    found = whole_fields(message(whole.get(_FIELD, b"")))
    extra = []
    for data in (message(v) for n, _, v in found if n == 6):
        pair = {n: v for n, _, v in whole_fields(data)}
        extra.append((text(pair.get(1, b"")), text(pair.get(2, b""))))
    waits = [i for n, w, v in found if n == 18 for i in packed(w, v)]
    return Stage({n: v for n, _, v in found}, waits, extra)


@dataclass
class GpuStages:
    """Places GPU events and, at the end, connects them with the slices that submit or await them.

    Attributes:
        rows: (row, GPU event id, awaited ids), in time order.
    """

    tokens: Tokens
    tracks: Tracks
    book: SliceBook
    labels: Labels
    tally: Tally
    rows: list[tuple[int, int, list[int]]] = field(default_factory=list)
    _lanes: dict[tuple[int, int, str, int], SpanLanes] = field(default_factory=dict)

    def add(self, ts: int, event: int) -> int:
        """The row of a GPU event; NONE if it makes no slice."""
        shape = self.tokens.shape_at(event)
        generation = self.tokens.generations[shape.generation]
        stage = _stage(self.tokens.packets.packet(self.tokens.place[event]))
        if 1 not in stage.last:
            return NONE
        queue = self._queue(stage, generation)
        if queue is None:
            self.tally.add("P04-name", f"GPU queue id {stage.integer(13)}")
            return NONE
        gpu, dur = stage.integer(11), max(signed(stage.last.get(2, 0)), 0)
        key = (shape.track[0], gpu, queue, stage.integer(13) or stage.integer(3))
        if key not in self._lanes:
            row = TrackRow((f"GPU {gpu}", queue), "gpu_render_stage", queue)
            self._lanes[key] = SpanLanes(lambda: self.tracks.add_free(row), nesting=False)
        name = self._name(stage, generation)
        lane = self._lanes[key].place(ts, dur)
        made = self.book.begin(lane, ts, self.labels.number((name, None)), dur)
        if made >= 0:
            self.rows.append((made, stage.integer(1), stage.waits))
        return made

    def connect(self, links: Iterable[tuple[int, list[int], list[int]]], flows: FlowBook) -> None:
        """Draw the arrows between host and GPU slices.

        Args:
            links: (row of a host slice, GPU events it submits, GPU events it awaits), in time
                order; of several for one GPU event the last one counts.
        """
        submitted: dict[int, int] = {}
        awaited: dict[int, int] = {}
        for row, submits, awaits in links:
            submitted.update(dict.fromkeys(submits, row))
            awaited.update(dict.fromkeys(awaits, row))
        done: dict[int, list[int]] = {}
        for row, gpu, _ in self.rows:
            done.setdefault(gpu, []).append(row)
        for row, gpu, waits in self.rows:
            if gpu in submitted:
                flows.draw(submitted[gpu], row)
            if gpu in awaited:
                flows.draw(row, awaited[gpu])
            for waited in waits:
                for source in done.get(waited, []):
                    flows.draw(source, row)

    def _queue(self, stage: Stage, generation: Generation) -> str | None:
        if 13 in stage.last:
            return generation.text(GPU_SPECIFICATIONS, stage.integer(13))
        return f"Unknown GPU Queue {stage.integer(3)}"

    def _name(self, stage: Stage, generation: Generation) -> str | None:
        if 20 in stage.last:
            return generation.text(EVENT_NAMES, stage.integer(20))
        if 17 in stage.last:
            return text(stage.last[17])
        if 14 in stage.last:
            return generation.text(GPU_SPECIFICATIONS, stage.integer(14))
        return f"render stage({stage.integer(4)})"


_NUMBERS = (
    ("context_id", 5, "uint"),
    ("render_target", 8, "uint"),
    ("render_pass", 9, "uint"),
    ("command_buffer", 12, "uint"),
    ("submission_id", 10, "int"),
)


def gpu_arguments(packet: bytes, generation: Generation) -> list[Argument]:
    """The arguments the importer gives a GPU slice.

    Left out: launch dimensions, kernels, Vulkan object names, and the number of its process.
    """
    stage = _stage(packet)
    found: list[Argument] = []
    entry = generation.entry(GPU_SPECIFICATIONS, stage.integer(14))
    if 14 in stage.last and entry is not None:
        spec = {n: v for n, _, v in whole_fields(entry)}
        found.append(Argument("render_stage_category", "int", number(spec.get(4, 0))))
        found.append(Argument("description", "string", text(spec.get(3, b""))))
    found.extend(Argument(name, "string", value) for name, value in stage.extra)
    for name, n, kind in _NUMBERS:
        found.append(Argument(name, kind, stage.integer(n)))
    for name in ("render_target_name", "render_pass_name", "command_buffer_name"):
        found.append(Argument(name, "string", ""))
    masks = [i for n, v in stage.last.items() if n == 15 for i in packed(0, v)]
    found.append(Argument("render_subpasses", "string", _bits(masks)))
    found.append(Argument("hw_queue_id", "uint", stage.integer(13) or stage.integer(3)))
    return found


def _bits(masks: list[int]) -> str:
    return ",".join(str(64 * i + b) for i, m in enumerate(masks) for b in range(64) if m >> b & 1)
