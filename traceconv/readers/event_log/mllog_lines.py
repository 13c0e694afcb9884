"""The ``:::MLLOG`` lines of MLPerf logs as slices and instants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain, to_ns
from traceconv.core.errors import ClockError, Issues
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Capture, Kind, Layer, OpClass
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.lines import (
    Lines,
    Report,
    Slices,
    rank_in_path,
    text,
    unheard,
)
from traceconv.readers.shared.numbers import count_of

TAG = ":::MLLOG"
_TASK = lazy_regex(
    r"\s*(?:(\d{1,9}):|.*\[(\d{1,9})\]:?|.*\[[^\]]*,(\d{1,9})\](?:<std\w{2,3}>)?:?)\s*"
)
"""The task in front of a line: ``3:`` of srun, ``[3]``, ``[1,3]<stdout>:`` of mpirun."""

_ENDING = lazy_regex(r"_(?:start|stop|begin|end)\Z")
_STEP_NAMES = ("epoch", "block")
_STEP_KEYS = ("epoch_num", "first_epoch_num", "step_num", "step")

Raws = dict[str, msgspec.Raw]


class _Line(msgspec.Struct):
    time_ms: msgspec.Raw
    key: str
    event_type: str = "POINT_IN_TIME"
    value: msgspec.Raw = msgspec.Raw(b"null")
    metadata: msgspec.Raw = msgspec.Raw(b"null")


_LINE = msgspec.json.Decoder(_Line)
_METADATA = msgspec.json.Decoder(Raws)


def _lines(source: Source, name: str, report: Report) -> Iterator[tuple[str, int | None, _Line]]:
    """Every tagged line: its place, its task and its content."""
    with source.open(name) as stream:
        lines = Lines(stream, report)
        for number, written in lines.numbered():
            before, tag, payload = written.partition(TAG)
            if not tag:
                continue
            try:
                line = _LINE.decode(payload)
            except NOT_JSON as e:
                lines.damaged(number, e)
                continue
            match = _TASK.fullmatch(before)
            yield f"line {number}", int(match[match.lastindex or 1]) if match else None, line


def captures(source: Source, name: str, issues: Issues) -> list[Capture]:
    """One capture per task in a log."""
    title = source.title(name)
    damage: list[tuple[str, str]] = []
    tasks = {task for _, task, _ in _lines(source, name, lambda *where: damage.append(where))}
    if len(tasks) > 1:  # damaged lines name no task, so they are counted once, here
        for code, where in damage:
            issues.add(code, title, where)
    return [
        Capture(
            reader="mllog",
            source=source,
            files=(name,),
            rank=rank_in_path(title) if task is None else task,
            rank_from="task in front of the line" if task is not None else "name",
            clock=Anchor(Domain.UNIX, evidence="Unix time stamps"),
            label=title if len(tasks) == 1 else f"{title} (task {task})",
            detail=(task, len(tasks) == 1),
        )
        for task in sorted(tasks, key=lambda t: -1 if t is None else t)
    ]


def read_task(capture: Capture, build: TraceBuilder) -> None:
    """Put every interval and point in time of one task into ``build``."""
    build.file = capture.source.title(capture.files[0])
    requested, alone = capture.detail
    timeline = _Timeline(build)
    report: Report = build.skip if alone else unheard
    for where, task, line in _lines(capture.source, capture.files[0], report):
        if task == requested:
            timeline.take(where, line)
    timeline.finish()


@dataclass(frozen=True)
class _Interval:
    name: str
    where: str
    start: int
    end: int
    args: Mapping[str, bytes]
    step: int


class _Timeline:
    """Pairs starts with ends; intervals become slices once it is known which are the steps."""

    def __init__(self, build: TraceBuilder) -> None:
        self._build = build
        self._slices = Slices(build)
        self._open: dict[str, list[_Interval]] = {}
        self._closed: list[_Interval] = []
        self._last = 0

    def take(self, where: str, line: _Line) -> None:
        """One line."""
        try:
            time_ns = to_ns(bytes(line.time_ms).strip(b'"'), "ms")
        except ClockError:
            self._build.skip("bad-time", where)
            return
        self._last = max(self._last, time_ns)
        name = _ENDING.sub("", line.key) or "(no name)"
        if line.event_type == "INTERVAL_START":
            metadata = _metadata(line)
            numbers = (count_of(text(metadata[key])) for key in _STEP_KEYS if key in metadata)
            step = next((number for number in numbers if number >= 0), -1)
            interval = _Interval(name, where, time_ns, time_ns, _arguments(line), step)
            self._open.setdefault(name, []).append(interval)
        elif line.event_type == "INTERVAL_END":
            self._end(name, where, time_ns, line)
        else:
            track = self._build.track(Layer.HOST, "Marks", title="MLPerf", sort=1)
            args = _object(_arguments(line))
            self._slices.add(track, time_ns, 0, line.key, OpClass.HOST, args, kind=Kind.INSTANT)

    def _end(self, name: str, where: str, time_ns: int, line: _Line) -> None:
        opened = self._open.get(name)
        if not opened:
            self._build.skip("end-without-begin", where)
        elif time_ns < opened[-1].start:
            opened.pop()
            self._build.lose("negative-duration", where)
        else:
            begun = opened.pop()  # its end may say more, such as the status of a run
            self._closed.append(
                replace(begun, end=time_ns, args={**begun.args, **_arguments(line)})
            )

    def finish(self) -> None:
        """Add all slices; intervals that never end are closed at the last stamp."""
        for interval in (interval for opened in self._open.values() for interval in opened):
            self._build.skip("unfinished-slice", interval.where)
            self._closed.append(replace(interval, end=self._last))
        names = {interval.name for interval in self._closed}
        steps = next((name for name in _STEP_NAMES if name in names), "")
        for number, interval in enumerate(
            sorted(self._closed, key=lambda i: (i.name != steps, i.start))
        ):
            self._add_slice(interval, interval.name == steps, number)
        self._slices.flush()

    def _add_slice(self, interval: _Interval, is_step: bool, number: int) -> None:
        length = interval.end - interval.start
        if not is_step:
            track = self._build.track(Layer.HOST, "Intervals", title="MLPerf")
            self._slices.add(
                track, interval.start, length, interval.name, OpClass.HOST, _object(interval.args)
            )
            return
        step = interval.step if interval.step >= 0 else number
        track = self._build.track(Layer.STEP, "Steps")
        name = f"{interval.name} {step}"
        self._slices.add(
            track, interval.start, length, name, OpClass.ITERATION, _object(interval.args), step
        )


def _metadata(line: _Line) -> Raws:
    try:
        return _METADATA.decode(line.metadata)
    except NOT_JSON:
        return {}  # "" in logs of power measurements


def _arguments(line: _Line) -> dict[str, bytes]:
    """Value and metadata as JSON, without the path of the source file."""
    return {
        key: bytes(raw)
        for key, raw in {"value": line.value, **_metadata(line)}.items()
        if key not in ("file", "lineno") and bytes(raw) != b"null"
    }


def _object(members: Mapping[str, bytes]) -> bytes:
    inner = b",".join(quoted(key) + b":" + raw for key, raw in members.items())
    return b"{" + inner + b"}" if inner else b""
