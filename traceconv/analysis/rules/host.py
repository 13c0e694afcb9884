"""Rules of the host while the device waits for it: synchronisation, allocation, garbage collection,
compilation, launches of small kernels; and of copies between the two."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from traceconv.analysis.rank_facts import COPIES, IDLE
from traceconv.analysis.rules.definition import (
    OWN,
    STEPS_KEPT,
    Case,
    Known,
    Limit,
    Limits,
    Rule,
    as_case,
    each_rank,
    longest,
    lost,
    slices_of,
)
from traceconv.analysis.tables.host import (
    COLLECTION,
    ONLY_WAITS,
    SYNCHRONISATION,
    called,
    launches,
    leading_rows,
)
from traceconv.analysis.tables.idle import idle_of
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
from traceconv.core.model import I64, Layer, Mask, OpClass, StepTable, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.core.robust import median
from traceconv.passes.input_wait import input_spans
from traceconv.passes.overlap import DeviceTime, device_times

THEME = "host"
MSPROF_ANALYZE = "msprof-analyze"


_ALLOCATION = called(
    r"(?:(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister)\w*"
    r"|cuMem(?:Alloc|Free|Create|Release|Map|Unmap|AddressReserve|AddressFree|SetAccess)\w*"
    r"|(?:AscendCL@)?acl(?:rt)?(?:Malloc|Free)\w*|rt(?:Malloc|Free)\w*)(?:\[.*)?"
)
_COMPILATION = called(
    r"(?:AscendCL@)?aclop(?:CompileAndExecute|Compile)\w*"
    r"|.*_compile\.compile_inner(?: \(dynamo_timed\))?"
    r"|(?:.*/)?torch/_dynamo/convert_frame\.py\(\d+\): (?:_compile|compile_inner)"
    r"|(?:.*/)?torch/_inductor/compile_fx\.py\(\d+\): compile_fx(?:_inner)?"
)
_COPY = lazy_regex(
    r"(?i:Host[\W_]*(?:to|->)[\W_]*Device|Device[\W_]*(?:to|->)[\W_]*Host)"
    r"|(?<![A-Z])(?:H(?:2|to|To|TO|->)D|D(?:2|to|To|TO|->)H)(?![A-Za-z])"  # "MemcpyD2H"
)
_BETWEEN = NameTest(lambda name: _COPY.search(name[:200]))
_PAGEABLE = lazy_regex("pageable", re.I)

SHORT_NS = 10_000
"""HTA calls shorter kernels short."""

BOUND_NS = 100_000
"""A longer gap is not the cost of one launch."""


# -- calls --------------------------------------------------------------------------------


def inside(time: I64, spans: I64) -> Mask:
    """Whether each instant is in one of the spans, or at its end."""
    before = np.searchsorted(spans[:, 0], time, "right") - 1
    is_inside: Mask = before >= 0
    if len(spans):
        is_inside &= time <= spans[np.maximum(before, 0), 1]
    return is_inside


def _calls(
    names: NameTest, *layers: Layer, recorded: bool = False, marked: bool = False
) -> Callable[[Trace], Known | None]:
    """Facts about calls with these names: a step without them is shorter by as long as any of them
    runs, and by no more than the device is idle.

    Args:
        layers:   that have them; the first one must have been recorded.
        recorded: whether a rank without any of them may have made them nevertheless.
        marked:   whether steps have to be marked: a capture without steps may hold the start of the
            program.
    """

    def facts(trace: Trace) -> Known | None:
        steps = measured(trace.steps)
        if not len(steps) or not trace.rows_of(layers[0]).any():
            return None
        if marked and not steps.marked.all():
            return None
        rows = leading_rows(trace, names, *layers)
        if recorded and not len(rows):
            return None
        events, spans = trace.events, np.stack((steps.start_ns, steps.end_ns), axis=1)
        within = length_within(union(events.start_ns[rows], events.ends(rows)), spans)
        begun = np.sort(events.start_ns[rows])
        count = np.searchsorted(begun, spans[:, 1]) - np.searchsorted(begun, spans[:, 0])
        rows = rows[inside(events.start_ns[rows], union(spans[:, 0], spans[:, 1]))]
        figures = {"calls_per_step": float(np.mean(count)),
                   "longest_ns": int(events.dur_ns[rows].max(initial=0))}  # fmt: skip
        known_ns, numbers = int(steps.known_ns.sum()), steps.step[(within > 0) & (steps.step >= 0)]
        return lost(
            len(steps), int(within.sum()), known_ns, IDLE, longest(trace, rows), figures,
            steps=numbers.tolist()[:STEPS_KEPT],
        )  # fmt: skip

    return facts


# -- synchronisation ----------------------------------------------------------------------


@once_each
def idle_gaps(trace: Trace, steps: StepTable) -> list[tuple[DeviceTime, I64]]:
    """When each device is idle within steps and does not wait for input."""
    spans = steps.device_spans
    within, waits = union(spans[:, 0], spans[:, 1]), input_spans(trace)
    return [
        (device, subtraction(intersection(idle_of(trace, device), within), waits))
        for device in device_times(trace)
    ]


_sync_calls = _calls(SYNCHRONISATION, Layer.RUNTIME)


def _synchronised(trace: Trace) -> Known | None:
    """The calls, and how long the device is idle in gaps that begin while one of them runs."""
    calls_facts = _sync_calls(trace)
    if calls_facts is None or trace.hints.partial_device:
        return None
    steps, rows = measured(trace.steps), leading_rows(trace, SYNCHRONISATION, Layer.RUNTIME)
    calls = union(trace.events.start_ns[rows], trace.events.ends(rows))
    behind = sum(
        total(gaps[inside(gaps[:, 0], calls)]) for _, gaps in idle_gaps(trace, steps) if len(gaps)
    )
    figures = {**calls_facts["figures"], "idle_behind_them_ns": round(behind / len(steps))}
    if n_launches := len(launches(trace).device):
        waits = trace.events.start_ns[leading_rows(trace, ONLY_WAITS, Layer.RUNTIME)]
        only = int(inside(waits, union(steps.start_ns, steps.end_ns)).sum())
        figures["per_launch_percent"] = 100 * only / n_launches
    return {**calls_facts, "value": float(share(behind, steps.known_ns.sum())), "figures": figures}


def _synchronising(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """Judged by the idle time after the calls, or by the number of calls that only wait if most
    launches have one."""
    if not facts["figures"]["calls_per_step"] or facts["value"] <= limits[""]:
        return
    ratio = facts["figures"].get("per_launch_percent", 0)
    often = {"value": ratio, "limit": "per-launch", "advice": _BLOCKING}
    yield as_case(rank, facts, **(often if ratio > limits["per-launch"] else {}))


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
    within, ns, ends = union(spans[:, 0], spans[:, 1]), 0, []
    lengths = [np.zeros(0, np.int64)]
    for device, gaps in idle_gaps(trace, steps):
        rows = device.kernels[inside(events.start_ns[device.kernels], within)]
        lengths.append(events.dur_ns[rows])
        short = np.unique(events.start_ns[rows[events.dur_ns[rows] < SHORT_NS]])
        before = gaps[np.isin(gaps[:, 1], short) & (gaps[:, 1] - gaps[:, 0] <= BOUND_NS)]
        ns += total(before)
        ends.append(before[:, 1])
    kernels = np.concatenate(lengths)
    if not len(kernels):
        return None
    free = slices_of(trace, OpClass.FREE)
    shown = free[np.isin(events.ends(free), np.concatenate(ends))]
    figures = {
        "kernels_per_step": len(kernels) / len(steps),
        "short_percent": 100 * int((kernels < SHORT_NS).sum()) / len(kernels),
        "median_ns": round(float(median(kernels))),
    }
    known_ns = int(steps.known_ns.sum())
    return lost(len(steps), ns, known_ns, IDLE, longest(trace, shown), figures)


# -- copies -------------------------------------------------------------------------------


def _copies(trace: Trace) -> Known | None:
    """Copies between host and device within steps, and the time that nothing hides."""
    steps, events = measured(trace.steps), trace.events
    if not len(steps) or trace.hints.partial_device:
        return None
    spans, devices = steps.device_spans, device_times(trace)
    # where copies are all that is known, what hides them is unknown
    if not any(len(device.copies) for device in devices) or not any(
        len(o.kernels) for o in devices
    ):
        return None
    within, alone = union(spans[:, 0], spans[:, 1]), 0
    between = rows_named(trace, _BETWEEN)
    copy_rows = [np.zeros(0, np.intp)]
    for device in devices:
        rows = device.copies[between[device.copies]]
        rows = rows[inside(events.start_ns[rows], within)]
        work = merged(device.computing, device.exposed)
        copying = subtraction(union(events.start_ns[rows], events.ends(rows)), work)
        alone += total(intersection(copying, intersection(device.known, within)))
        copy_rows.append(rows)
    rows, count = np.concatenate(copy_rows), len(steps)
    names = [trace.strings[i] for i in events.name[rows].tolist()]
    pageable = sum(bool(_PAGEABLE.search(name)) for name in names)
    figures = {"copies_per_step": len(rows) / count, "not_overlapped_ns": round(alone / count)}
    figures |= {"pageable_per_step": pageable / count} if pageable else {}
    return lost(
        count, alone, int(steps.known_ns.sum()), COPIES, longest(trace, rows), figures,
        advice=_PIN if 2 * pageable > len(rows) else "",
    )  # fmt: skip


_PIN = (
    "Most of them use pageable memory: pin it (pin_memory=True), and copy with non_blocking=True."
)

_RUNTIME = "calls of the device's runtime on the host, and steps with device work"
_MARKED = "calls of the device's runtime on the host, and markers of steps with device work"

RULES: tuple[Rule, ...] = (
    Rule(
        "host-sync",
        "The device is idle because the host waited for it",
        THEME,
        "share of the steps in which the device is idle after a synchronisation of the host",
        (
            Limit(2.0, "%", OWN),
            Limit(
                50.0,
                "%",
                MSPROF_ANALYZE,
                "per-launch",
                measure="calls that only wait for the device, of its launches",
            ),
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
        "share of the steps in which calls allocate or free memory",
        (Limit(2.0, "%", OWN),),
        _MARKED,
        "Memory is short or fragmented, so that the framework's cache does not hold: lower the "
        "batch, use expandable segments, and do not empty the cache within steps.",
        _calls(_ALLOCATION, Layer.RUNTIME, marked=True),
    ),
    Rule(
        "garbage-collection",
        "Garbage collections stop the host",
        THEME,
        "share of the steps in which garbage is collected",
        (Limit(1.0, "%", OWN),),
        "recorded collections of Python (torch_npu records them with gc_detect_threshold)",
        "Collect explicitly on all ranks in the same step, at a fixed interval (gc.disable, "
        "gc.collect), or gc.freeze long-lived objects, so that ranks do not pause in turn.",
        _calls(COLLECTION, Layer.HOST, Layer.RUNTIME, recorded=True),
    ),
    Rule(
        "compilation",
        "Operators are compiled within steps",
        THEME,
        "share of the steps in which operators are compiled",
        (Limit(2.0, "%", OWN),),
        _MARKED,
        "Use binaries that are compiled already (torch_npu: jit_compile=False); where shapes "
        "change from step to step, pad them, or declare dimensions dynamic for torch.compile.",
        _calls(_COMPILATION, Layer.RUNTIME, Layer.HOST, marked=True),
    ),
    Rule(
        "small-kernels",
        "Launching takes longer than the kernels: many small ones",
        THEME,
        "share of the steps that is idle for up to 100 µs before a kernel of less than 10 µs",
        (Limit(10.0, "%", f"{OWN}; the limit of short kernels is HTA's"),),
        "kernels of the device within steps",
        "Fuse small operators (compilers, fused optimizers, foreach), or launch whole graphs.",
        _small_kernels,
    ),
    Rule(
        "step-copies",
        "Copies between host and device within steps are not hidden",
        THEME,
        "share of the steps in which the device copies from or to the host and does nothing else",
        (Limit(2.0, "%", OWN),),
        "copies of the device within steps",
        "Prefetch input on a separate stream, keep reused tensors on the device, and leave "
        "out copies for logging.",
        _copies,
    ),
)
