"""``python -m fuzz differential``: one damaged input, read and written in every way there is.

What must be equal, whatever the damage:

* with the C parts and without (``tiers``), in blocks of any size (``chunks``), packed with gzip and
  plain (``gzip``), on one thread and on two (``threads``): the same rows, samples, arrows, names,
  arguments, and issues with their places;
* copied by bytes and through the model (``copy``): the same rows, unless the copy names an issue;
* written by one process or thread and by two (``jobs``; two threads where there is one rank): the
  same bytes of output, and the same issues.

Where it is not, both say the same error. Anything else is a finding.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import traceconv
from fuzz import run
from fuzz.pipeline import Outcome, Wrong, rows
from fuzz.pipeline import _traces as traces_of
from fuzz.seeds import Seed
from traceconv import TraceconvError
from traceconv.core.model import Trace
from traceconv.io import window
from traceconv.io.threads import using
from traceconv.merging.copying import READERS as COPIED
from traceconv.readers.shared.trace_events import timeline
from traceconv.writers import Document, output
from traceconv.writers.perfetto import encoder
from traceconv.writers.text_lines import Lines

IN_BLOCKS = (
    *(
        "chrome_json",
        "kineto",
        "mindspore",
        "msprof",
        "paddle",
        "rocprof",
        "trace_view",
        "xla_json",
    ),
)
"""Readers of trace events."""

CHUNKS = (64, 509, 4096, 65536)
"""Sizes of blocks, besides the usual one."""

DATABASES = (".db", ".sqlite", ".rpd")
"""Files that are not read packed."""

BY_SIZE = ("msprof",)
"""Readers that choose among exports by the size of files, which is another one when packed."""

JOBS_EVERY = 12
"""Every so many-th input is also written by two jobs."""

PROCESSES_EVERY = 12
"""One in so many of those with several ranks, whose processes take a second to start."""

Content = tuple[str, list[bytes], list[tuple[Any, ...]]]
"""What was read: the error, lines of text, issues."""


def main(given: list[str]) -> int:
    """Parse arguments, run, print the table; 1 if anything was found."""
    return run.main(given, "differential", examine)


def examine(seed: Seed, scratch: Path, rng: Random, given: argparse.Namespace) -> str:
    """Read and write one input in every way that applies to it.

    Raises:
        Wrong: two ways differ. Whatever else is raised is a finding, too.
    """
    usual = content(seed.path)
    further = [rng.choice([*BLOCKWISE]), "threads"] if seed.reader in IN_BLOCKS else []
    for name in ("tiers", *further):
        with WAYS[name](seed, rng) as applies:
            if applies:
                _same(name, usual, content(seed.path))
    if seed.reader in COPIED:
        copy_and_model(seed.path, scratch)
    if rng.randrange(JOBS_EVERY) == 0:
        jobs(seed.path, scratch, rng)
    return "refused" if usual[0] and not usual[1] else "read"


def content(path: Path) -> Content:
    """All that is read of what lies at ``path``, as text."""
    outcome, lines = Outcome(), list[bytes]()
    for trace in traces_of(path, outcome, None):
        lines += text(trace)
        outcome.issues.extend(trace.issues)
    issues = [(i.code, i.file, i.rank, i.count, i.places) for i in outcome.issues]
    return outcome.error, lines, sorted(issues)


def text(trace: Trace) -> Iterator[bytes]:
    """A rank as lines of text."""
    of = Lines(trace, Document(0, (trace.rank,)))
    for number, track in enumerate(trace.tracks):
        for block in of.of_track(number, track):
            yield from block.splitlines()
    for block in of.arrows():
        yield from block.splitlines()


def _same(name: str, usual: Content, other: Content) -> None:
    for what, a, b in zip(("error", "rows", "issues"), usual, other, strict=True):
        if a == b:
            continue
        if what == "error":
            raise Wrong(f"{name}: error {a[:300]!r} against {b[:300]!r}")
        more, less = Counter(b) - Counter(a), Counter(a) - Counter(b)
        raise Wrong(
            f"{name}: {what}: usual only {[*less.elements()][:4]!s:.900}; "
            f"other only {[*more.elements()][:4]!s:.900}"
        )


# -- ways to read --------------------------------------------------------------------------------


@contextmanager
def _without_c(seed: Seed, rng: Random) -> Iterator[bool]:
    os.environ["TRACECONV_NATIVE"] = "0"
    try:
        yield True
    finally:
        del os.environ["TRACECONV_NATIVE"]


@contextmanager
def _chunks(seed: Seed, rng: Random) -> Iterator[bool]:
    with _set(timeline, "CHUNK_BYTES", rng.choice(CHUNKS)):
        yield True


@contextmanager
def _chunks_without_c(seed: Seed, rng: Random) -> Iterator[bool]:
    with _without_c(seed, rng), _chunks(seed, rng):
        yield True


@contextmanager
def _threads(seed: Seed, rng: Random) -> Iterator[bool]:
    """Two: streams are read ahead, in blocks of few bytes."""
    small = _set(timeline, "CHUNK_BYTES", rng.choice((4, 19, 64)))
    with small, _set(window, "AHEAD_BYTES", 0), using(2):
        yield True


@contextmanager
def _set(module: Any, name: str, value: int) -> Iterator[None]:
    usual = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, usual)


@contextmanager
def _packed(seed: Seed, rng: Random) -> Iterator[bool]:
    if seed.reader in BY_SIZE or any(
        f.suffix in DATABASES or f.read_bytes()[:2] == b"\x1f\x8b" for f in seed.files
    ):
        yield False
        return
    was = {file: file.read_bytes() for file in seed.files}
    named = [f for f in seed.files if f.suffix == ".json"]
    try:
        for file in named:
            file.write_bytes(gzip.compress(was[file], 1, mtime=0))
        yield bool(named)
    finally:
        for file in named:
            file.write_bytes(was[file])


BLOCKWISE: dict[str, Callable[[Seed, Random], Any]] = {
    "chunks": _chunks,
    "chunks without C": _chunks_without_c,
    "gzip": _packed,
}
"""What is read anew, in turn, where files are read in blocks."""

WAYS: dict[str, Callable[[Seed, Random], Any]] = {
    "tiers": _without_c,
    "threads": _threads,
    **BLOCKWISE,
}


# -- ways to write -------------------------------------------------------------------------------


def copy_and_model(path: Path, scratch: Path) -> None:
    """Raise Wrong if a copy by bytes holds other rows than the way through the model."""
    found: list[tuple[str, Counter[Any]]] = []
    named: set[str] = set()
    for copy in (True, False):
        out = scratch / "copy.json"
        try:
            report = traceconv.merge(
                str(path), out=str(out), mode="source", copy=copy, force=True, jobs=1
            )
        except TraceconvError as e:
            found.append((type(e).__name__, Counter()))
            continue
        if copy:
            named = {issue.code for issue in report.issues}
            if "not-copied" in named:
                return
        found.append(("", written(out)))
    (copy_error, copied), (model_error, modelled) = found
    if copy_error != model_error:
        raise Wrong(f"copy: {copy_error or 'written'} against {model_error or 'written'}")
    if copied != modelled and not named & {"copy-faulty", "copy-unchecked"}:
        more, less = copied - modelled, modelled - copied
        raise Wrong(f"copy: copy only {[*more][:4]!s:.900}; model only {[*less][:4]!s:.900}")


def written(path: Path) -> Counter[Any]:
    """Rows of an output, without its lanes: process numbers are the writer's own."""
    counted: Counter[Any] = Counter()
    base = json.loads(path.read_bytes()).get("baseTimeNanoseconds", 0)  # a copy keeps it beside
    for trace in traceconv.open(str(path), reader="chrome_json").traces("source"):
        for _, name, kind, start, dur in rows(trace):
            counted[name, kind, start + base, dur] += 1
        names = [trace.tracks[t].name for t in trace.counters.track.tolist()]
        starts = [start + base for start in trace.counters.start_ns.tolist()]
        columns = (starts, trace.counters.value.tolist())
        counted.update(zip(names, *columns, strict=True))
    return counted


def jobs(path: Path, scratch: Path, rng: Random) -> None:
    """Raise Wrong if two processes, or two threads for a rank that is alone, write other bytes.

    Processes take a second to start: of inputs with several ranks, few are tried.
    """
    out = scratch / "jobs.pftrace"
    alone = _merged(path, out, 1)
    if alone.ranks != 1:
        if rng.randrange(PROCESSES_EVERY) == 0:
            _alike(alone, _merged(path, out, 2))
        return
    with (  # threads of this process know of it, other processes would not
        _set(output, "WORTHWHILE", 0),
        _set(encoder, "BLOCK", rng.choice((3, 64, encoder.BLOCK))),
    ):
        _alike(_merged(path, out, 1), _merged(path, out, 2))


class _Output(NamedTuple):
    """What a run has written: how many ranks (0: an error), and what must be the same."""

    ranks: int
    error: str
    data: bytes
    issues: list[tuple[Any, ...]]


def _merged(path: Path, out: Path, jobs: int) -> _Output:
    out.unlink(missing_ok=True)
    try:
        report = traceconv.merge(str(path), out=str(out), mode="detail", force=True, jobs=jobs)
    except TraceconvError as e:
        return _Output(0, str(e), b"", [])
    issues = [(i.code, i.count, i.places) for i in report.issues]
    return _Output(len(report.ranks), "", out.read_bytes(), issues)


def _alike(one: _Output, two: _Output) -> None:
    if one != two:
        said = [(o.error, len(o.data), o.issues) for o in (one, two)]
        raise Wrong(f"jobs: {said!s:.900}")
