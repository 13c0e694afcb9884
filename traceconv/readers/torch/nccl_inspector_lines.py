"""Lines of NCCL Inspector logs: their operations, and the kernels of their channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain, is_unix_ns, to_ns
from traceconv.core.errors import ClockError, Issues
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.core.source import Source
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.lines import Lines, Report, Slices, text, unheard
from traceconv.readers.shared.numbers import count_of

Raws = dict[str, msgspec.Raw]


class _Header(msgspec.Struct):
    id: str = ""
    comm_name: str = ""
    rank: int = -1
    n_ranks: int = 0


class _Metadata(msgspec.Struct):
    dump_timestamp_us: int = 0
    hostname: str = ""
    pid: int = -1


class _Kernel(msgspec.Struct):
    channel_id: int = -1
    kernel_start_ts: int = 0
    kernel_stop_ts: int = 0


class _Times(msgspec.Struct):
    coll_start_ts: int = 0
    p2p_start_ts: int = 0
    kernel_events: list[_Kernel] = []


class _Line(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: Raws | None = None
    p2p_perf: Raws | None = None
    event_trace_ts: _Times | None = None
    dump_stats: Raws | None = None


_LINE = msgspec.json.Decoder(_Line)
_TIMES = msgspec.json.Decoder(_Times)

Process = tuple[str, int]
"""Host and process id: a process is a rank."""


def _lines(
    source: Source, name: str, report: Report
) -> Iterator[tuple[str, _Header, _Metadata, _Line]]:
    """Every line with its place and the heads that hold for it."""
    header, metadata = _Header(), _Metadata()
    with source.open(name) as stream:
        lines = Lines(stream, report)
        for number, payload in lines.numbered():
            try:
                line = _LINE.decode(payload)
            except NOT_JSON as e:
                lines.damaged(number, e)
                continue
            header, metadata = line.header or header, line.metadata or metadata
            yield f"line {number}", header, metadata, line


def captures(source: Source, name: str, issues: Issues) -> list[Capture]:
    """One capture per process in a log."""
    title = source.title(name)
    headers: dict[Process, dict[str, _Header]] = {}
    damage: list[tuple[str, str]] = []
    for _, header, metadata, _ in _lines(source, name, lambda *where: damage.append(where)):
        process = metadata.hostname, metadata.pid
        headers.setdefault(process, {})[header.id] = header
    if len(headers) > 1:  # whose lines are damaged is not known, so they are booked once, here
        for code, where in damage:
            issues.add(code, title, where)
    processes = []
    for (host, pid), communicators in headers.items():
        largest = max(communicators.values(), key=lambda h: h.n_ranks)
        if any(
            h.n_ranks == largest.n_ranks and h.rank != largest.rank for h in communicators.values()
        ):
            issues.add("rank-conflict", title, "communicators of the same size")
        processes.append(
            Capture(
                reader="nccl_inspector",
                source=source,
                files=(name,),
                rank=largest.rank if largest.rank >= 0 else None,
                rank_from="rank in the largest communicator",
                host=host,
                pid=pid,
                clock=Anchor(Domain.UNIX, evidence="Unix time stamps"),
                world_size=largest.n_ranks or -1,
                label=title if len(headers) == 1 else f"{title} (process {pid})",
                detail=((host, pid), len(headers) == 1),
            )
        )
    return processes


def read_process(capture: Capture, build: TraceBuilder) -> None:
    """Put every operation of one process into ``build``."""
    build.file = capture.source.title(capture.files[0])
    process, alone = capture.detail
    report: Report = build.skip if alone else unheard
    operations = _Operations(build)
    for where, header, metadata, line in _lines(capture.source, capture.files[0], report):
        if (metadata.hostname, metadata.pid) == process:
            operations.take(where, header, metadata, line)
    operations.finish()


class _Operations:
    """Turns lines into slices: an operation, and under it the kernel of every channel."""

    def __init__(self, build: TraceBuilder) -> None:
        self._build = build
        self._slices = Slices(build)

    def take(self, where: str, header: _Header, metadata: _Metadata, line: _Line) -> None:
        """One line."""
        perf = line.coll_perf if line.coll_perf is not None else line.p2p_perf
        if perf is not None:
            self._operation(where, header, metadata, perf, line.event_trace_ts)
        elif line.dump_stats is not None:
            for kind in ("coll", "p2p"):
                dropped = line.dump_stats.get(f"{kind}_dropped_since_last_dump", b"0")
                self._build.skip("source-dropped", where, max(count_of(text(dropped)), 0))
        else:
            self._build.skip("kind-not-read", where)

    def finish(self) -> None:
        """Hand over what was taken."""
        self._slices.flush()

    def _operation(
        self, where: str, header: _Header, metadata: _Metadata, perf: Raws, times: _Times | None
    ) -> None:
        kind = "coll" if "coll" in perf else "p2p"
        name = text(perf.get(kind, b"")) or "(no name)"
        raw = perf.get("event_trace_ts")
        try:
            times = _TIMES.decode(raw) if raw is not None else times or _Times()
            length = to_ns(text(perf.get(f"{kind}_exec_time_us", b"0")))
        except (*NOT_JSON, ClockError) as e:
            self._lose(where, "malformed-record", str(e)[:80])
            return
        if length < 0:
            self._lose(where, "negative-duration")
            return
        # some builds write the GPU's own clock instead of Unix time
        kernels = [k for k in times.kernel_events if is_unix_ns(k.kernel_start_ts * 1000)]
        complete = [k for k in kernels if k.kernel_stop_ts >= k.kernel_start_ts]
        if complete:
            begun = min(k.kernel_start_ts for k in complete) * 1000
            length = max(k.kernel_stop_ts for k in complete) * 1000 - begun
        else:
            begun = (times.coll_start_ts or times.p2p_start_ts) * 1000
            begun = begun or metadata.dump_timestamp_us * 1000 - length
            if not is_unix_ns(begun):
                self._lose(where, "bad-time")
                return
            self._build.skip("time-estimated", where)
        members = [
            quoted(key) + b":" + bytes(raw)
            for key, raw in perf.items()
            if key not in ("event_trace_sn", "event_trace_ts")
        ]
        ranks = b'"communicator":%b,"n_ranks":%d' % (quoted(header.id), header.n_ranks)
        args = b"{" + b",".join([*members, ranks]) + b"}"
        group = f"Group {header.comm_name or header.id}"
        track = self._build.track(
            Layer.COMM, "Operations", group, "NCCL", sort=-1, communicator=group
        )
        self._slices.add(track, begun, length, name, OpClass.COMM, args, where=where)
        self._channels(where, name, group, kernels)

    def _channels(self, where: str, name: str, group: str, kernels: Sequence[_Kernel]) -> None:
        for kernel in kernels:
            length = (kernel.kernel_stop_ts - kernel.kernel_start_ts) * 1000
            if length < 0:
                self._lose(where, "negative-duration")
                continue
            channel = f"Channel {kernel.channel_id}"
            track = self._build.track(Layer.COMM, channel, group, "NCCL", communicator=group)
            start = kernel.kernel_start_ts * 1000
            self._slices.add(track, start, length, name, OpClass.COMM_TASK, where=where)

    def _lose(self, where: str, code: str, why: str = "") -> None:
        self._build.lose(code, f"{where}: {why}" if why else where)
