"""XLA's profiler: the JSON of its trace viewer, read where the profile itself is absent.

Written by: ``jax.profiler`` with the profile (``<host>.trace.json.gz``) and on request
            (``perfetto_trace.json.gz``); TensorBoard's plugin and xprof, which order keys in other
            ways (``trace_events_to_json.h``); seen: JAX 0.10 on CPUs.
Files:      ``*.trace.json.gz``, or any name; recognised by the processes it names. An
            ``.xplane.pb`` in the folder is read instead: it has links, programs and all events.
Units and clock: us with six digits, rounded to ns, since the begin of the recording, which is not
            recorded.
Rank from:  "rank<n>" in the path. All devices of a file are one rank.
Quirks:     devices are processes (``/device:TPU:0``), their lines threads. Operations of the CPU
            backend are on host threads and recognised by their arguments (golden case devices);
            flows lead to them from the launching calls. A length of 0 is written as 1 ps.
Ignored:    the last, empty record.
Source:     as :mod:`traceconv.readers.xla.xplane`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared.lines import capture_of_file

_NAMES = (".json", ".json.gz", ".trace")
_EVENTS = lazy_regex(rb'"traceEvents"\s*:\s*\[')
_PROCESS = lazy_regex(rb'"name"\s*:\s*"(?:/host:CPU|/device:(?:TPU|GPU):\d+)"')


class ViewerJsonReader:
    """Reads the JSON of XLA's trace viewer."""

    name = "xla_json"
    title = "XLA profiler, JSON of its viewer"
    files = "*.trace.json.gz, perfetto_trace.json.gz (JAX, TensorFlow)"
    order = 346

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per file; ``perfetto_trace.json.gz`` only in folders without another."""
        found: list[Capture] = []
        folders = set()
        for name in sorted(names, key=lambda n: "perfetto_trace.json" in n):
            if not name.lower().endswith(_NAMES):
                continue
            head = source.head(name)
            folder = name.rpartition("/")[0]
            if not (b'"process_name"' in head and _EVENTS.search(head) and _PROCESS.search(head)):
                continue
            if "perfetto_trace.json" in name and folder in folders:
                issues.add("repeated-content", source.title(name))
                in_folder = max(i for i, c in enumerate(found) if c.files[0].startswith(folder))
                found[in_folder] = replace(
                    found[in_folder],
                    known=(*found[in_folder].known, name),
                    uses={**found[in_folder].uses, name: "the same events"},
                )
                continue
            folders.add(folder)
            found.append(capture_of_file(self.name, source, name, None))
        return found

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.shared.trace_events.timeline import USED_KEYS, read_events
        from traceconv.readers.xla.viewer_lanes import Lanes

        build.hints.free_rule = "device"
        build.file = capture.source.title(capture.files[0])
        lanes = Lanes(build)
        read_events(
            capture.source, capture.files[0], build, lanes, revise=lanes.revise,
            used_keys=USED_KEYS | {"metadata"},
        )  # fmt: skip
        lanes.draw()


READER = ViewerJsonReader()
