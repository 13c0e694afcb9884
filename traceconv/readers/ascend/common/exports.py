"""Which of the exports in a PROF folder are read: newest first, nothing twice.

Three generations of names: ``msprof_<time>.json`` and ``msprof_slice_<n>_<time>.json`` in
``mindstudio_profiler_output``, and the single export of 2023, one set of files per iteration:
``{msprof,step_trace,hccl,task_time}_<device>_<model>_<iteration>.json`` in ``device_<d>/timeline``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

from traceconv.core.model import EVERY_GRAPH, NO_GRAPH
from traceconv.io.sources import Source
from traceconv.readers.ascend.common.parts import Part, Role, is_empty

_WHOLE = re.compile(r"msprof_(\d{8,})\.json(?:\.gz)?")
_SLICE = re.compile(r"msprof_slice_(\d+)_(\d{8,})\.json(?:\.gz)?")
_STEPS = re.compile(r"step_trace_(?:slice_\d+_)?(\d{8,})\.(json|csv)")
_SINGLE = re.compile(r"(msprof|step_trace|hccl|task_time)_(\d+)_(\d+)_(\d+)\.(json|csv)")
_FIRST_ITERATION = re.compile(rb'"Iteration (\d+)"')


def is_timeline(name: str) -> bool:
    """Whether a file's name is that of an export's timeline."""
    base = PurePosixPath(name).name
    found = (p.fullmatch(base) for p in (_WHOLE, _SLICE, _STEPS, _SINGLE))
    return any(match and "csv" not in match.groups() for match in found)


def is_step_table(name: str) -> bool:
    """Whether a file's name is that of an export's step trace table."""
    base = PurePosixPath(name).name
    found = (p.fullmatch(base) for p in (_STEPS, _SINGLE))
    return base.startswith("step_trace_") and any(m and "csv" in m.groups() for m in found)


def single_device(name: str) -> int:
    """The device in the file name of a single export; -1 if it is none."""
    match = _SINGLE.fullmatch(PurePosixPath(name).name)
    return int(match[2]) if match else -1


@dataclass
class Choice:
    """What of an export is read, and what is left and why.

    Attributes:
        repeated:   files whose events stand in the chosen ones too.
        superseded: files of older exports.
        empty:      exports without content.
        missing:    files that must have been there, by what their neighbours are called.
        tables:     step trace tables.
        single:     whether they are of the single export, one window per iteration.
    """

    parts: list[Part] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    single: bool = False


def choose(source: Source, names: Iterable[str]) -> Choice:
    """Pick the files to read among the timelines and step tables of one PROF folder."""
    choice = Choice()
    by_name = {name: PurePosixPath(name).name for name in names}
    full = [n for n in by_name if not is_empty(source, n)]
    choice.empty = [n for n in by_name if n not in set(full)]
    stamped = {n: by_name[n] for n in full if not _SINGLE.fullmatch(by_name[n])}
    single = {n: by_name[n] for n in full if n not in stamped}
    if any(base.startswith("msprof") for base in stamped.values()) or not single:
        _choose_stamped(choice, stamped)
        choice.superseded += single
    else:
        choice.superseded += stamped
        _choose_single(choice, source, single)
    if not choice.parts:
        choice.parts = [Part(n) for n in choice.empty if by_name[n].startswith("msprof")]
        choice.empty = [n for n in choice.empty if n not in {p.name for p in choice.parts}]
    choice.parts += [Part(n, Role.STEP_TABLE) for n in choice.tables]
    return choice


def _choose_stamped(choice: Choice, names: dict[str, str]) -> None:
    whole = {n: m[1] for n, base in names.items() if (m := _WHOLE.fullmatch(base))}
    slices = {n: (m[2], int(m[1])) for n, base in names.items() if (m := _SLICE.fullmatch(base))}
    steps = {n: m for n, base in names.items() if (m := _STEPS.fullmatch(base))}
    run = last_run(slices)
    newest = max(whole.values(), default="")
    if whole and newest >= max((slices[n][0] for n in run), default=""):
        events = [n for n, stamp in whole.items() if stamp == newest]
    else:
        events = run
        numbers = [-1, *(slices[n][1] for n in run)]  # ascending; the gaps may be large
        gaps = [(a + 1, b - 1) for a, b in pairwise(numbers) if b - a > 1]
        choice.missing += [f"msprof_slice_{a}" + (f" to {b}" if b > a else "") for a, b in gaps]
    for kind, role in (("json", Role.STEPS), ("csv", Role.STEP_TABLE)):
        of_kind = {n: m[1] for n, m in steps.items() if m[2] == kind}
        last = sorted(n for n, stamp in of_kind.items() if stamp == max(of_kind.values()))
        if role is Role.STEPS:
            choice.parts += [Part(n, role, EVERY_GRAPH) for n in last]
        else:
            choice.tables += last
    choice.parts += [Part(n) for n in events]
    kept = {p.name for p in choice.parts} | set(choice.tables)
    choice.superseded += [n for n in names if n not in kept]


def last_run(slices: dict[str, tuple[str, int]]) -> list[str]:
    """The slices of the newest export, by number.

    Slices are written one after the other, so within an export the time does not fall as the
    number rises; going back in time, a number that does not fall belongs to an older export.
    """
    run: list[str] = []
    for name in sorted(slices, key=lambda n: slices[n], reverse=True):
        if run and slices[name][1] >= slices[run[-1]][1]:
            break
        run.append(name)
    return run[::-1]


def _choose_single(choice: Choice, source: Source, names: dict[str, str]) -> None:
    files: dict[str, dict[tuple[int, int], str]] = {}
    for name, base in names.items():
        if match := _SINGLE.fullmatch(base):
            kind = match[1] if match[5] == "json" else "table"
            files.setdefault(kind, {})[int(match[3]), int(match[4])] = name
    steps, older = _distinct_steps(source, files.get("step_trace", {}))
    choice.parts += [Part(n, Role.STEPS, _graph(model)) for model, n in steps]
    choice.superseded += older
    choice.tables += _last_of_each_model(files.get("table", {}))
    iterations = sorted(
        {k for kind in ("msprof", "hccl", "task_time") for k in files.get(kind, {})}
    )
    for key in iterations:
        for kind in ("msprof",) if key in files.get("msprof", {}) else ("hccl", "task_time"):
            if key in files.get(kind, {}):
                window = f"model {key[0]} iteration {key[1]}"
                choice.parts.append(Part(files[kind][key], graph=_graph(key[0]), window=window))
    whole = files.get("msprof", {})
    for model, iteration in iterations:
        if whole and (model, iteration) not in whole:
            choice.missing.append(f"msprof_*_{model}_{iteration}.json")
    kept = {p.name for p in choice.parts} | {*choice.tables, *choice.superseded}
    choice.repeated += [n for n in names if n not in kept]
    choice.single = True


def _graph(model: int) -> int:
    return -1 if model >= NO_GRAPH else model


def _last_of_each_model(tables: dict[tuple[int, int], str]) -> list[str]:
    last = {model: (model, iteration) for model, iteration in sorted(tables)}
    return [tables[key] for key in last.values()]


def _distinct_steps(
    source: Source, files: dict[tuple[int, int], str]
) -> tuple[list[tuple[int, str]], list[str]]:
    """(model, file) of the step traces to read, and the files that hold less.

    Every iteration's file usually holds the whole run's step trace, so one is enough: the
    largest of those that begin with the same iteration. Files of several models may be alike too.
    """
    alike: dict[tuple[int, bytes], list[str]] = {}
    for (model, _), name in sorted(files.items()):
        match = _FIRST_ITERATION.search(source.head(name))
        alike.setdefault((model, match[1] if match else b""), []).append(name)
    distinct: dict[bytes, tuple[int, str]] = {}
    shorter: list[str] = []
    for (model, _), names in alike.items():
        largest = max(names, key=source.size)
        shorter += [n for n in names if source.size(n) < source.size(largest)]
        distinct.setdefault(_digest(source, largest), (model, largest))
    return list(distinct.values()), shorter


def _digest(source: Source, name: str) -> bytes:
    import hashlib

    digest = hashlib.sha256()
    with source.open(name) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.digest()
