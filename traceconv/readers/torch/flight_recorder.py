"""PyTorch flight recorder: the last collectives of every process group, dumped when a job hangs.

Written by: PyTorch 2.2 and newer; format 1.1 to 2.10 by its description; of real runs only dumps of
            Gloo (2.13) were at hand.
Files:      the usual dump, ``nccl_trace_rank_<n>``, which is a pickle, and the JSON form
            (``_dump_nccl_trace_json``), any name. Pickles are read by a machine that makes plain
            values and nothing else (:mod:`traceconv.readers.torch.plain_pickle`); where both forms
            are there, JSON is read.
Units and clock: ns, Unix time. Start and end are when the watchdog noticed them; where the length
            on the device is recorded (``duration_ms``) a collective is that long and ends when it
            was noticed to be complete, but does not begin before it was created.
Rank from:  "rank<n>" in the path; the dump does not name it. Its coordinates, and how many ranks
            there are, from ``pg_config`` (golden case ``parallel_groups``).
Quirks:     a time that is not known is null, or 0 in JSON; what has not ended is what the dump is
            about: it is closed at the last stamp of the dump, and is in no figure of communication
            (golden case ``hang``). When Gloo's collectives end is not recorded (case ``gloo``).
Ignored:    stack frames of operations that ended, and folders in others, as these are of the user;
            the state of the communicators.
Source:     torch/csrc/distributed/c10d/FlightRecorder.hpp of pytorch/pytorch, which writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source

_SIGNS = ((b'"profiling_name"', b'"time_created_ns"'), (b'"pg_status"', b'"pg_config"'))
_PICKLE_SIGNS = (b"pg_config", b"nccl_version", b"profiling_name")


class FlightRecorderReader:
    """Reads dumps of the flight recorder."""

    name = "flight_recorder"
    title = "PyTorch flight recorder"
    files = "nccl_trace_rank_<n>, nccl_trace_rank_<n>.json (any name)"
    order = 330

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per dump."""
        from traceconv.readers.torch.flight_recorder_dump import capture_of

        captures = {}
        pickles = []
        for name in names:
            head = source.head(name)
            is_object = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
            signed = any(all(word in head for word in words) for words in _SIGNS)
            if head.startswith(b"\x80") and any(sign in head for sign in _PICKLE_SIGNS):
                pickles.append(name)
            elif is_object and signed and b'"traceEvents"' not in head:
                captures[name] = capture_of(source, name)
        for name in pickles:
            if twin := captures.get(f"{name}.json"):
                uses = {name: "the same dump as a pickle"}
                captures[f"{name}.json"] = replace(twin, known=(name,), uses=uses)
            else:
                captures[name] = capture_of(source, name)
        return list(captures.values())

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Every collective of a dump; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.torch.flight_recorder_dump import read_dump

        build.hints.supplement = True
        read_dump(capture, build)


READER = FlightRecorderReader()
