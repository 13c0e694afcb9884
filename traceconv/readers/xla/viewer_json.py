"""XLA's profiler: the JSON its own viewer shows, where the profile itself is not there.

Written by: ``jax.profiler`` beside the profile (``<host>.trace.json.gz``), and on request
            (``perfetto_trace.json.gz``); TensorBoard's plugin; seen: JAX 0.10 on processors.
Files:      ``*.trace.json.gz``, or any name; known by the processes it names. If the
            ``.xplane.pb`` is beside it, that is read: it has links, programs and all events.
Units and clock: us with six digits, rounded to the ns, from the begin of the recording: nothing
            says when that was.
Rank from:  "rank<n>" in the path. All devices of a file are one rank.
Quirks:     devices are processes (``/device:TPU:0``), their lines threads; what the backend for
            processors carried out is on threads of the host, and known by its arguments (golden
            case devices); arrows lead there from the calls, by numbers of programs or the order of
            both. What has no length reads a picosecond.
Ignored:    the last, empty record.
Source:     as :mod:`traceconv.readers.xla.xplane`.
"""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared.lines import rank_in_path

_NAMES = (".json", ".json.gz", ".trace")
_EVENTS = lazy_regex(rb'"traceEvents"\s*:\s*\[')
_PROCESS = lazy_regex(
    rb'"process_name"\s*,\s*"args"\s*:\s*\{\s*"name"\s*:\s*"(?:/host:CPU|/device:(?:TPU|GPU):\d+)"'
)


class ViewerJsonReader:
    """Reads what XLA's profiler writes for trace viewers."""

    name = "xla_json"
    title = "XLA profiler, JSON of its viewer"
    files = "*.trace.json.gz, perfetto_trace.json.gz (JAX, TensorFlow)"
    order = 346

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per file; ``perfetto_trace.json.gz`` only where no other is beside it."""
        found: list[Capture] = []
        folders = set()
        for name in sorted(names, key=lambda n: "perfetto_trace.json" in n):
            if not name.lower().endswith(_NAMES):
                continue
            head = source.head(name)
            folder = name.rpartition("/")[0]
            if not (_EVENTS.search(head) and _PROCESS.search(head)):
                continue
            if "perfetto_trace.json" in name and folder in folders:
                issues.add("repeated-content", source.title(name))
                last = max(i for i, c in enumerate(found) if c.files[0].startswith(folder))
                found[last] = _with_known(found[last], name)
                continue
            folders.add(folder)
            rank = rank_in_path(name)
            found.append(
                Capture(
                    reader=self.name,
                    source=source,
                    files=(name,),
                    rank=rank,
                    rank_from="name" if rank is not None else "",
                    label=source.title(name),
                )
            )
        return found

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.shared.trace_events.timeline import read_events
        from traceconv.readers.xla.viewer_lanes import Lanes

        build.hints.free_rule = "device"
        build.file = capture.source.title(capture.files[0])
        lanes = Lanes(build)
        read_events(capture.source, capture.files[0], build, lanes, revise=lanes.revise)
        lanes.draw()


def _with_known(capture: Capture, name: str) -> Capture:
    from dataclasses import replace

    return replace(
        capture,
        known=(*capture.known, name),
        uses={**capture.uses, name: "the same events"},
    )


READER = ViewerJsonReader()
