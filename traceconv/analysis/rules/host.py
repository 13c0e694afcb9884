"""Rules of what the host does while the device waits for it: synchronisation, allocation, garbage
collection, compilation, launches of small kernels; and of copies between the two."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.losses import COPIES, IDLE
from traceconv.analysis.rules.definition import (
    OWN,
    STEPS_KEPT,
    Case,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    longest,
    slices,
)
from traceconv.analysis.tables.fields import is_ascend
from traceconv.analysis.tables.host import launches
from traceconv.analysis.utilisation import measured, share
from traceconv.core.columns import once_each
from traceconv.core.intervals import (
    intersection,
    length_within,
    merged,
    subtraction,
    total,
    union,
)
from traceconv.core.model import (
    I64,
    Kind,
    Layer,
    Mask,
    OpClass,
    StepSource,
    StepTable,
    Trace,
)
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.ordering import among
from traceconv.core.patterns import lazy_regex
from traceconv.core.robust import median
from traceconv.passes.input_wait import input_spans, leading
from traceconv.passes.overlap import DeviceTime, device_times

THEME = "host"
MSPROF_ANALYZE = "msprof-analyze"


def _called(names: str, flags: int = 0) -> NameTest:
    pattern = lazy_regex(names, flags)
    return NameTest(lambda name: pattern.fullmatch(name))


_VERSION = r"(?:_v\d+|_ptsz|_ptds)*(?:\[.*)?"
_WAITS = (
    r"(?:cuda|hip|cu|rt)(?:Device|Stream|Event|Ctx)Synchronize(?:WithTimeout)?"
    r"|(?:AscendCL@)?aclrtSynchronize(?:Device|Stream|Event)(?:WithTimeout)?"
)
_ONLY_WAITS = _called(f"(?:{_WAITS}){_VERSION}")
_SYNC = _called(rf"(?:{_WAITS}|(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol)?){_VERSION}")
_ALLOCATION = _called(
    r"(?:(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister)\w*"
    r"|cuMem(?:Alloc|Free|Create|Release|Map|Unmap|AddressReserve|AddressFree|SetAccess)\w*"
    r"|(?:AscendCL@)?acl(?:rt)?(?:Malloc|Free)\w*|rt(?:Malloc|Free)\w*)(?:\[.*)?"
)
_COMPILATION = _called(
    r"(?:AscendCL@)?aclop(?:CompileAndExecute|Compile)\w*"
    r"|.*_compile\.compile_inner(?: \(dynamo_timed\))?"
    r"|(?:.*/)?torch/_dynamo/convert_frame\.py\(\d+\): (?:_compile|compile_inner)"
    r"|(?:.*/)?torch/_inductor/compile_fx\.py\(\d+\): compile_fx(?:_inner)?"
)
_COLLECTION = _called(r"(?:Python )?GC(?: .*)?|gc\.collect|<built-in function collect>", re.I)
_COPY = lazy_regex(
    r"(?i:Host[\W_]*(?:to|->)[\W_]*Device|Device[\W_]*(?:to|->)[\W_]*Host)"
    r"|(?<![A-Z])(?:H(?:2|to|To|TO|->)D|D(?:2|to|To|TO|->)H)(?![A-Za-z])"  # "MemcpyD2H"
)
_BETWEEN = NameTest(lambda name: _COPY.search(name[:200]))
_PAGEABLE = lazy_regex("pageable", re.I)

SHORT_NS = 10_000
"""HTA calls kernels short that take less."""

BOUND_NS = 100_000
"""A longer gap is not the cost of one launch."""


# -- calls --------------------------------------------------------------------------------


def _rows(trace: Trace, names: NameTest, *layers: Layer) -> NDArray[np.intp]:
    """Slices of these names on the threads that give the device work to do."""
    events, rows = trace.events, rows_named(trace, names)
    if rows.any():
        rows &= events.kind == Kind.SLICE
        rows &= trace.rows_of(*layers) & leading(trace)[events.track]
    return np.flatnonzero(rows)


def _marked(steps: StepTable) -> I64:
    return np.stack((steps.start_ns, steps.end_ns), axis=1)


def _calls(names: NameTest, *layers: Layer, recorded: bool = False, marked: bool = False) -> Any:
    """What is known of calls of these names: of each step how many begin in it and for how long
    any of them runs, ns.

    Args:
        layers:   on which they are; of the first one something has to be recorded.
        recorded: whether a rank without any of them may have done them all the same.
        marked:   whether steps have to be marked: a capture that counts as one is as long as it is,
            and holds the beginning of a program.
    """

    def facts(trace: Trace) -> Known | None:
        steps = measured(trace.steps)
        if not len(steps) or not trace.rows_of(layers[0]).any():
            return None
        if marked and (steps.source == StepSource.WHOLE_RANGE).any():
            return None
        rows = _rows(trace, names, *layers)
        if recorded and not len(rows):
            return None
        events, spans = trace.events, _marked(steps)
        within = length_within(union(events.start_ns[rows], events.ends(rows)), spans)
        begun = np.sort(events.start_ns[rows])
        count = np.searchsorted(begun, spans[:, 1]) - np.searchsorted(begun, spans[:, 0])
        within_steps = rows[inside(events.start_ns[rows], union(spans[:, 0], spans[:, 1]))]
        lengths = events.dur_ns[within_steps]
        return {
            "step": steps.step.tolist(),
            "calls": count.tolist(),
            "ns": within.tolist(),
            "longest_ns": int(lengths.max(initial=0)),
            "longest": longest(trace, within_steps),
        }

    return facts


def inside(time: I64, spans: I64) -> Mask:
    """Whether each instant is in one of the spans, or at its end."""
    before = np.searchsorted(spans[:, 0], time, "right") - 1
    found: Mask = before >= 0
    if len(spans):
        found &= time <= spans[np.maximum(before, 0), 1]
    return found


def _case(
    rank: int, known: Known, value: float, per: Callable[[I64], Mask], **more: Any
) -> Case:  # fmt: skip
    """A case of calls that keep the host from launching: a step without them is shorter by as long
    as they take, and by no more than the device is idle."""
    step, ns = (np.array(known[name], np.int64) for name in ("step", "ns"))
    figures = {
        "calls_per_step": float(np.mean(known["calls"])),
        "per_step_ns": round(float(ns.mean())),
        "longest_ns": known["longest_ns"],
        "steps": len(step),
    }
    figures |= more.pop("figures", {})
    steps = step[per(ns) & (step >= 0)].tolist()[:STEPS_KEPT]
    return Case(
        rank, value, figures, "", steps, slices(known["longest"]),
        saves_ns=float(ns.mean()), part_of=(IDLE,), **more,
    )  # fmt: skip


def _per_step(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    """By the mean time per step, ms."""
    value = float(np.mean(known["ns"])) / 1e6
    if value > limits[""]:
        yield _case(rank, known, value, lambda ns: ns > limits[""] * 1e6)


def _longest_call(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    """By the longest one, ms."""
    value = known["longest_ns"] / 1e6
    if value > limits[""]:
        yield _case(rank, known, value, lambda ns: ns > limits[""] * 1e6)


# -- synchronisation ----------------------------------------------------------------------


@once_each
def idle_gaps(trace: Trace, steps: StepTable) -> list[tuple[DeviceTime, I64]]:
    """Of each device when it is idle within steps and nobody waits for input."""
    spans = steps.device_spans
    within, waits = union(spans[:, 0], spans[:, 1]), input_spans(trace)
    found = []
    for one in device_times(trace):
        busy = merged(merged(one.computing, one.exposed), one.unclassified)
        if not is_ascend(trace):
            busy = merged(busy, one.copying)
        idle = subtraction(intersection(one.known, within), busy)
        found.append((one, subtraction(idle, waits)))
    return found


_sync_calls = _calls(_SYNC, Layer.RUNTIME)


def _synchronised(trace: Trace) -> Known | None:
    """The calls, and how long the device is idle in gaps that begin while one of them runs."""
    known = _sync_calls(trace)
    if known is None or trace.hints.partial_device:
        return None
    steps, rows = measured(trace.steps), _rows(trace, _SYNC, Layer.RUNTIME)
    calls = union(trace.events.start_ns[rows], trace.events.ends(rows))
    behind = sum(
        total(gaps[inside(gaps[:, 0], calls)]) for _, gaps in idle_gaps(trace, steps) if len(gaps)
    )
    waits = trace.events.start_ns[_rows(trace, _ONLY_WAITS, Layer.RUNTIME)]
    marks = union(steps.start_ns, steps.end_ns)
    return {
        **known,
        "waits": int(inside(waits, marks).sum()),
        "behind_ns": behind,
        "known_ns": int(steps.known_ns.sum()),
        "launches": len(launches(trace).device),
    }


def _synchronising(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    """By the idle time that follows them; by the number of those that do nothing else than waiting,
    if most launches have one."""
    steps, many = len(known["step"]), known["launches"]
    idle = float(share(known["behind_ns"], known["known_ns"]))
    figures = {"idle_behind_them_ns": round(known["behind_ns"] / steps)}
    if many:
        figures["per_launch_percent"] = 100 * known["waits"] / many
    ratio = figures.get("per_launch_percent", 0)
    if not sum(known["calls"]):
        return
    if idle <= limits[""]:
        return
    if ratio > limits["per-launch"]:
        yield _case(
            rank, known, ratio, lambda ns: ns > 0, limit="per-launch", advice=_BLOCKING,
            figures=figures,
        )  # fmt: skip
    else:
        yield _case(rank, known, idle, lambda ns: ns > 0, figures=figures)


_PER_LAUNCH = "calls that only wait for the device, of its launches"
_BLOCKING = (
    "Most launches are waited for: look whether CUDA_LAUNCH_BLOCKING, ASCEND_LAUNCH_BLOCKING or a "
    "debugging mode is set."
)


# -- launches of small kernels ------------------------------------------------------------


def _small_kernels(trace: Trace) -> Known | None:
    """Kernels and their lengths, and short gaps that end where a short kernel begins."""
    steps, events = measured(trace.steps), trace.events
    if not len(steps) or trace.hints.partial_device or trace.hints.tables_only:
        return None
    spans = steps.device_spans
    within, lost, ends = union(spans[:, 0], spans[:, 1]), 0, []
    lengths = [np.zeros(0, np.int64)]
    for one, gaps in idle_gaps(trace, steps):
        rows = one.kernels[inside(events.start_ns[one.kernels], within)]
        lengths.append(events.dur_ns[rows])
        short = np.unique(events.start_ns[rows[events.dur_ns[rows] < SHORT_NS]])
        before = gaps[among(gaps[:, 1], short) & (gaps[:, 1] - gaps[:, 0] <= BOUND_NS)]
        lost += total(before)
        ends.append(before[:, 1])
    kernels = np.concatenate(lengths)
    if not len(kernels):
        return None
    free = np.flatnonzero(events.op == OpClass.FREE)
    shown = free[among(events.ends(free), np.sort(np.concatenate(ends)))]
    return {
        "steps": len(steps),
        "kernels": len(kernels),
        "short": int((kernels < SHORT_NS).sum()),
        "median_ns": round(float(median(kernels))),
        "lost_ns": lost,
        "known_ns": int(steps.known_ns.sum()),
        "longest": longest(trace, shown),
    }


def _launch_bound(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    value = float(share(known["lost_ns"], known["known_ns"]))
    if value > limits[""]:
        figures = {
            "kernels_per_step": known["kernels"] / known["steps"],
            "short_percent": 100 * known["short"] / known["kernels"],
            "median_ns": known["median_ns"],
            "steps": known["steps"],
        }
        yield Case(
            rank, value, figures, "", (), slices(known["longest"]),
            saves_ns=known["lost_ns"] / known["steps"], part_of=(IDLE,),
        )  # fmt: skip


# -- copies -------------------------------------------------------------------------------


def _copies(trace: Trace) -> Known | None:
    """Copies between host and device within steps, and what of them nothing hides."""
    steps, events = measured(trace.steps), trace.events
    if not len(steps) or trace.hints.partial_device:
        return None
    spans = steps.device_spans
    within, alone, some, works = union(spans[:, 0], spans[:, 1]), 0, False, False
    between = rows_named(trace, _BETWEEN)
    found = [np.zeros(0, np.intp)]
    for one in device_times(trace):
        some, works = some or len(one.copies) > 0, works or len(one.kernels) > 0
        rows = one.copies[between[one.copies]]
        rows = rows[inside(events.start_ns[rows], within)]
        work = merged(one.computing, one.exposed)
        copying = subtraction(union(events.start_ns[rows], events.ends(rows)), work)
        alone += total(intersection(copying, intersection(one.known, within)))
        found.append(rows)
    if not some or not works:  # where copies are all that is known, nobody knows what hides them
        return None
    rows = np.concatenate(found)
    names = [trace.strings[i] for i in events.name[rows].tolist()]
    return {
        "steps": len(steps),
        "copies": len(rows),
        "pageable": sum(bool(_PAGEABLE.search(name)) for name in names),
        "alone_ns": alone,
        "known_ns": int(steps.known_ns.sum()),
        "class": IDLE if is_ascend(trace) else COPIES,
        "longest": longest(trace, rows),
    }


def _copying(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    value = float(share(known["alone_ns"], known["known_ns"]))
    if value > limits[""]:
        figures = {
            "copies_per_step": known["copies"] / known["steps"],
            "not_overlapped_ns": round(known["alone_ns"] / known["steps"]),
            "steps": known["steps"],
        }
        if known["pageable"]:
            figures["pageable_per_step"] = known["pageable"] / known["steps"]
        yield Case(
            rank, value, figures, "", (), slices(known["longest"]),
            _PIN if 2 * known["pageable"] > known["copies"] else "",
            saves_ns=known["alone_ns"] / known["steps"], part_of=(known["class"],),
        )  # fmt: skip


_PIN = (
    "Most of them use pageable memory: pin it (pin_memory=True), and copy with non_blocking=True."
)

_RUNTIME = "calls of the device's runtime on the host, and steps with device work"
_MARKED = "calls of the device's runtime on the host, and marks of steps with device work"

RULES: tuple[Rule, ...] = (
    Rule(
        "host-sync",
        "The device runs dry because the host waited for it",
        THEME,
        "share of the steps in which the device is idle after a synchronisation of the host",
        (
            Limit(2.0, "%", OWN),
            Limit(50.0, "%", MSPROF_ANALYZE, "per-launch", measure=_PER_LAUNCH),
        ),
        _RUNTIME,
        "Avoid .item(), .cpu(), nonzero and prints of tensors within steps, or read results some "
        "steps later, so that the host stays ahead of the device.",
        _synchronised,
        each_rank(_synchronising),
    ),
    Rule(
        "allocation",
        "Memory of the device is allocated and freed within steps",
        THEME,
        "time of calls that allocate or free memory, per step",
        (Limit(10.0, "ms", MSPROF_ANALYZE),),
        _MARKED,
        "Memory is short or fragmented, so that the framework's cache does not hold: lower the "
        "batch, use expandable segments, and do not empty the cache within steps.",
        _calls(_ALLOCATION, Layer.RUNTIME, marked=True),
        each_rank(_per_step),
    ),
    Rule(
        "garbage-collection",
        "Garbage collections stop the host",
        THEME,
        "longest collection within steps",
        (Limit(1.0, "ms", MSPROF_ANALYZE),),
        "recorded collections of Python (torch_npu records them with gc_detect_threshold)",
        "Collect by hand every so many steps on all ranks at once (gc.disable, gc.collect), or "
        "gc.freeze what stays, so that ranks do not pause in turn.",
        _calls(_COLLECTION, Layer.HOST, Layer.RUNTIME, recorded=True),
        each_rank(_longest_call),
    ),
    Rule(
        "compilation",
        "Operators are compiled within steps",
        THEME,
        "time of compiling, per step",
        (Limit(10.0, "ms", OWN),),
        _MARKED,
        "Use binaries that are compiled already (torch_npu: jit_compile=False); where shapes "
        "change from step to step, pad them, or mark dimensions as dynamic for torch.compile.",
        _calls(_COMPILATION, Layer.RUNTIME, Layer.HOST, marked=True),
        each_rank(_per_step),
    ),
    Rule(
        "small-kernels",
        "Launching takes longer than the kernels: many small ones",
        THEME,
        "share of the steps that is idle for up to 100 µs before a kernel of less than 10 µs",
        (Limit(10.0, "%", f"{OWN}; what is short is HTA's"),),
        "kernels of the device within steps",
        "Fuse small operators (compilers, fused optimizers, foreach), or launch whole graphs.",
        _small_kernels,
        each_rank(_launch_bound),
    ),
    Rule(
        "step-copies",
        "Copies between host and device within steps are not hidden",
        THEME,
        "share of the steps in which the device copies from or to the host and does nothing else",
        (Limit(2.0, "%", OWN),),
        "copies of the device within steps",
        "Prefetch input on a stream of its own, keep what is used again on the device, and leave "
        "out copies for logging.",
        _copies,
        each_rank(_copying),
    ),
)
