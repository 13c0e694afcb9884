"""The figures of findings, by rule, rank and place: from rows, whatever the thresholds are."""

import re
from collections import defaultdict
from itertools import takewhile
from statistics import fmean, median

from . import host_rules, waiting, work_rules
from .device import curves, kernels, number, whole
from .figures import PARTS, percent
from .host import text_of, typed
from .intervals import Length, common, minus, total, union
from .losses import COMPUTING, COPIES, EXPOSED, IDLE, INPUT, PAUSE, Losses

SLICES_KEPT = 3
_FEWEST_LAUNCHES = 20
_FEWEST_STEPS = 3
_FEWEST_LINKS = 4
_SMALL_LINK = 0.1
_DEVIATIONS = 4.0
_SIGMA = 1.482602218505602
_MB = 10**6
_MESSAGE = re.compile(r"send|recv|receive", re.IGNORECASE)
_CONVERSION = re.compile(r"(?:.*/)?(?:aclnn\w*_)?(Cast|TransData)(?![a-z]).*", re.DOTALL)
_CUBE = re.compile(r"(?:Batch)?MatMul\w*|GroupedMatmul\w*")
_MEASURES = re.compile(r"Total Reserved|.*/HBM|.*/Memory|.*Reserved|.*/Total Reserved")


def findings(ranks, hosts, every, operations, links):
    """{(rule, rank, where): {"value": ..., figures}} for every rule that the trace has data for.

    Args:
        operations: of communication, by rank: of the trace, or of the profiler's own table.
        links: the table of that name.
    """
    found = {}
    for number_, rank in ranks.items():
        known = every[number_]
        for rule, where, figures in _of_rank(rank, hosts[number_], known, operations[number_]):
            found[rule, number_, where] = figures
    found |= dict(_spreads(ranks, every))
    found |= dict(_pipeline(ranks, every))
    found |= dict(_slow_links(links))
    found |= dict(work_rules.clocks(ranks, every))
    lost = {rank: Losses.of(known) for rank, known in every.items()}
    for (rule, rank, _), figures in found.items():
        figures["ms_per_step"] = _saving(rule, figures.pop("saves", None), lost[rank])
    return found


_LOST = {
    "device-idle": (IDLE,), "launch-starved": (IDLE,), "idle-spread": (IDLE,),
    "exposed-communication": (EXPOSED,), "communication-wait": (EXPOSED,),
    "small-packets": (EXPOSED,), "long-tail": (EXPOSED, IDLE),
    "input-wait": (INPUT,), "iteration-gap": (PAUSE,), "compute-spread": (),
    "format-conversion": (COMPUTING,), "unaligned-shapes": (COMPUTING,),
    "small-kernels": (IDLE,), "step-spikes": (), "step-copies": (COPIES,), "ai-cpu": (COMPUTING,),
    "host-sync": (IDLE,), "allocation": (IDLE,), "garbage-collection": (IDLE,),
    "compilation": (IDLE,), "late-overlap": (EXPOSED,), "host-pause": (IDLE,),
    "off-cpu": (IDLE,), "foreign-process": (IDLE,), "kernel-sequence": (IDLE,),
    "full-precision": (COMPUTING,), "uneven-operator": (COMPUTING,),
    "frequency-drop": (COMPUTING,), "unaligned-packets": (EXPOSED,), "retransmission": (EXPOSED,),
    "matmul-efficiency": (COMPUTING,), "slow-shape": (COMPUTING,),
    "attention-efficiency": (COMPUTING,),
    "stage-imbalance": (), "not-sunk": (IDLE,),
}  # fmt: skip
"""The classes of lost time that a step saves at most where a rule speaks."""


def _saving(rule, saves, lost):
    """What a step would save at most, ms: no more than the classes that the rule is about, as far
    as these are known; a pause that the source marks is one, whatever the device did."""
    if rule not in _LOST:
        return None
    classes = [name for name in _LOST[rule] if name != PAUSE or PAUSE in lost.per]
    if any(name not in lost.per for name in classes):
        return None
    most = [saves] if saves is not None else []
    most += [lost.devices * sum(lost.per[name] for name in classes)] if classes else []
    if classes and lost.devices > 1:
        most += [lost.length / lost.steps + lost.per.get(PAUSE, 0)]
    return max(min(most), 0) / 1e6


def _of_rank(rank, host, known, operations):
    pieces = _pieces(known)
    if pieces:
        yield from _device(known, pieces)
    yield from _sunk(known)
    yield from _input(rank, known)
    yield from _launches(rank, known)
    if not known.fact.partial:
        yield from _parts(rank, known)
        yield from _small_kernels(rank, known)
        yield from _copies(rank, known)
    yield from host_rules.rules(rank, host, known)
    yield from work_rules.rules(rank, host, known)
    yield from _spikes(known)
    told = list(known.fact.stated.known()) if known.only_stated else ()
    yield from _waits(rank, operations, len(known.measured()) or len(told))
    links = _sent(rank, known.fact.stated)
    yield from _packages(links)
    yield from work_rules.unaligned(links)
    if not known.fact.partial:
        yield from _operators(rank, host, max(len(known.measured()), 1))
    yield from _memory(rank)


def _longest(rows):
    """The longest slices, by duration; which of equal ones is left open."""
    return sorted((row.dur for row in rows), reverse=True)[:SLICES_KEPT]


# -- the device ---------------------------------------------------------------------------


def _pieces(known):
    """Length by class of every measured step, or of the whole rank; None if only collectives
    and copies are known, which do not say what the device did besides."""
    pieces = [known.figures(step) | {"step": step.number} for step in known.measured()]
    if not pieces and known.sets and known.sums()["known"] and not known.fact.partial:
        pieces = [known.sums() | {"step": -1}]
    works = any(piece["computing"] for piece in pieces)
    return pieces if works else None


def share(pieces, cls):
    """Of a class in what is known, percent."""
    spent = sum(piece[cls] or 0 for piece in pieces)
    return percent(spent, sum(piece["known"] for piece in pieces))


def _shares(pieces):
    names = ["computing", "not_overlapped", "free"]
    names += ["copy_not_overlapped"] * any(piece["copying"] for piece in pieces)
    shares = {f"{cls}_percent": share(pieces, cls) for cls in names}
    if told := [piece for piece in pieces if piece["input_wait"] is not None]:
        shares["input_wait_percent"] = share(told, "input_wait")
    return {
        "value": 100 - shares["free_percent"], **shares, "steps": len(pieces),
        "window_ns": sum(piece["known"] for piece in pieces),
    }  # fmt: skip


def _idle(known):
    return _longest(row for lanes in known.lanes.values() for row in lanes["free"])


def _device(known, pieces):
    shares, idle = _shares(pieces), _idle(known)
    exposed = _longest(row for lanes in known.lanes.values() for row in lanes["not_overlapped"])
    yield "device-idle", "", {**shares, "slices": idle}
    working = [piece for piece in pieces if not _waits_long(piece)]
    if working and share(working, "not_overlapped") <= 10:  # more is nothing to be content with
        yield "device-busy", "", {**_shares(working), "slices": []}
    if any(piece["communication"] for piece in pieces):
        value = share(pieces, "not_overlapped")
        yield "exposed-communication", "", {**shares, "value": value, "slices": exposed}


def _waits_long(piece):
    """Whether a step waits for input for more than 10 ms or 5 percent of it."""
    waits = piece["input_wait"]
    return waits is not None and (waits > 10**7 or 20 * waits > piece["known"])


def _sunk(known):
    """How idle steps are whose dataset is not sunk, as the name of the table of its queue says."""
    pieces = [known.figures(step) for step in known.measured()]
    if pieces and not known.fact.partial:
        sunk = "dataset_iterator_profiling" not in known.fact.stated.names
        idle = sum(piece["free"] for piece in pieces)
        yield "not-sunk", "", {
            "value": 0.0 if sunk else share(pieces, "free"),
            "idle_ns": round(idle / len(pieces)), "steps": len(pieces), "slices": _idle(known),
        }  # fmt: skip


def _input(rank, known):
    """Of the measured steps of which it is known."""
    pieces = [known.figures(step) for step in known.measured()]
    pieces = [piece for piece in pieces if piece["input_wait"] is not None]
    waits = [piece["input_wait"] for piece in pieces]
    if pieces:
        yield "input-wait", "", {
            "value": fmean(waits) / 1e6, "steps": len(pieces), "waiting_ns": round(fmean(waits)),
            "longest_ns": max(waits), "share_percent": share(pieces, "input_wait"),
            "slices": _longest([*waiting.fetches(rank), *waiting.ranges(rank)]),
        }  # fmt: skip


def _launches(rank, known):
    for layer in ("runtime", "host"):
        late = sorted(
            end.start - begin.start for begin, end, _ in rank.arrows
            if begin.lane.layer == layer and end.lane.layer == "device" and end.cls == "compute"
        )  # fmt: skip
        if len(late) >= _FEWEST_LAUNCHES:
            break
    else:
        return
    pieces = _pieces(known)
    if not pieces:
        return
    figures = {f"p{p}_ns": round(_percentile(late, p)) for p in (5, 25, 50, 75, 95)}
    early = min(figures["p5_ns"], 0)
    yield "launch-starved", "", {
        "value": (figures["p50_ns"] - early) / 1e3, **figures, "launches": len(late),
        "idle_percent": share(pieces, "free"), "slices": _idle(known),
    }  # fmt: skip


def _within(known):
    """The device windows of the measured steps, and what of them is known, ns."""
    steps = known.measured()
    spans = union(step.window for step in steps)
    return steps, spans, sum(known.figures(step)["known"] for step in steps)


def _begins(row, spans):
    return any(start <= row.start <= end for start, end in spans)


def _small_kernels(rank, known):
    """Gaps of up to 100 us that end where a kernel of less than 10 us begins."""
    steps, spans, whole_ns = _within(known)
    if not steps or known.fact.tables_only or len(known.sets) != 1:
        return
    rows = [row for row in kernels(rank, "compute") if _begins(row, spans)]
    [busy], [recorded] = waiting.busy_sets(known), known.recorded.values()
    idle = minus(minus(common(recorded, spans), busy), waiting.spans(known))
    short = {row.start for row in rows if row.dur < 10_000}
    gaps = [(start, end) for start, end in idle if end in short and end - start <= 100_000]
    ends = {end for _, end in gaps}
    lengths = [row.dur for row in rows]
    if lengths:
        yield "small-kernels", "", {
            "value": percent(total(gaps), whole_ns), "saves": total(gaps) / len(steps),
            "kernels_per_step": len(rows) / len(steps), "steps": len(steps),
            "short_percent": 100 * sum(ns < 10_000 for ns in lengths) / len(rows),
            "median_ns": round(median(lengths)),
            "slices": _longest(row for lanes in known.lanes.values() for row in lanes["free"]
                               if row.end in ends),
        }  # fmt: skip


def _copies(rank, known):
    """Copies from and to the host, less what runs meanwhile; of ranks with one device that is a
    GPU, since on others they are idle time."""
    steps, spans, whole_ns = _within(known)
    every = [row for row in kernels(rank, "copy") if row.lane.layer == "device"]
    if not steps or not every or len(known.sets) != 1 or known.fact.ascend:
        return
    if not kernels(rank, "compute"):
        return
    words = ("htod", "dtoh", "h2d", "d2h", "hosttodevice", "devicetohost", "host>device",
             "device>host")  # fmt: skip
    plain = {row.name: re.sub(r"[^a-z0-9>]", "", row.name.lower()) for row in every}
    rows = [row for row in every if any(word in plain[row.name] for word in words)]
    rows = [row for row in rows if _begins(row, spans)]
    [sets], [recorded] = known.sets.values(), known.recorded.values()
    work = union([*sets.get("computing", ()), *sets.get("communication", ())])
    copying = union((row.start, row.end) for row in rows)
    alone = total(common(common(minus(copying, work), recorded), spans))
    found = {
        "value": percent(alone, whole_ns), "saves": alone / len(steps), "steps": len(steps),
        "copies_per_step": len(rows) / len(steps),
        "not_overlapped_ns": round(alone / len(steps)), "slices": _longest(rows),
    }  # fmt: skip
    pageable = sum("pageable" in row.name.lower() for row in rows)
    yield (
        "step-copies",
        "",
        found | ({"pageable_per_step": pageable / len(steps)} if pageable else {}),
    )


def _spikes(known):
    """The longest step but the first, in medians; a threshold that all exceed makes all spikes."""
    steps = sorted(known.measured(), key=lambda step: step.window[0])[1:]
    if len(steps) < 4 or any(step.stated for step in steps):
        return
    every = [known.figures(step) for step in steps]
    length = [one["known"] for one in every]
    usual = median(length)
    classes = {"computing": "computing", "exposed": "not_overlapped", "idle": "free",
               "copies": "copy_not_overlapped"}  # fmt: skip
    taken = {name: [one[cls] for one in every] for name, cls in classes.items()}
    if all(one["input_wait"] is not None for one in every):
        taken["input"] = [one["input_wait"] for one in every]
        taken["idle"] = [free - ns for free, ns in zip(taken["idle"], taken["input"], strict=True)]
    yield "step-spikes", "", {
        "value": max(length) / usual if usual else 0.0, "steps": len(steps), "spikes": len(steps),
        "median_ns": round(usual), "saves": sum(ns - usual for ns in length) / len(steps),
        **{f"more_{name}_ns": round(fmean(ns) - median(ns)) for name, ns in taken.items()},
    }  # fmt: skip


def _percentile(ordered, p):
    """Between the two nearest values, in proportion."""
    at = p / 100 * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _spreads(ranks, every):
    """How the ranks of a job differ, over the marked steps that all of them have; each stage of a
    pipeline by itself, where those of all are known."""
    known = {rank: pieces for rank, one in every.items() if (pieces := _pieces(one))}
    for job in sorted({ranks[rank].job for rank in known}):
        of_job = {r: one for r, one in known.items() if ranks[r].job == job}
        stages = {ranks[rank].stage for rank in of_job}
        for stage in [None] if -1 in stages else sorted(stages):
            mine = {r: one for r, one in of_job.items() if stage in (None, ranks[r].stage)}
            if len(mine) > 1:
                yield from _spread(mine, every)


def _spread(known, every):
    every_piece = known
    common = set.intersection(*({p["step"] for p in pieces} for pieces in known.values()))
    unmarked = any(step.whole_range for rank in known for step in every[rank].measured())
    if not common or common == {-1} or unmarked:
        return
    known = {r: [p for p in pieces if p["step"] in common] for r, pieces in known.items()}
    means = {rank: fmean(p["computing"] for p in pieces) for rank, pieces in known.items()}
    idle = {rank: share(pieces, "free") for rank, pieces in known.items()}
    slow, fast = max(means, key=means.get), min(means, key=means.get)
    usual = fmean(means.values())
    waits = sum(fmean(p[cls] or 0 for p in every_piece[fast]) for cls in ("not_overlapped", "free"))
    yield ("compute-spread", slow, ""), {
        "value": percent(means[slow] - means[fast], usual), "computing_ns": round(means[slow]),
        "saves": min(means[slow] - means[fast], waits),
        "least_computing_ns": round(means[fast]), "rank_of_least": fast, "ranks": len(means),
        "slices": [],
    }  # fmt: skip
    most, least = max(idle, key=idle.get), min(idle, key=idle.get)
    yield ("idle-spread", most, ""), {
        "value": idle[most] - idle[least], "idle_percent": idle[most],
        "saves": (idle[most] - idle[least]) / 100 * fmean(p["known"] for p in every_piece[most]),
        "least_idle_percent": idle[least], "rank_of_least": least, "ranks": len(idle),
        "slices": _idle(every[most]),
    }  # fmt: skip


# -- stages of a pipeline -----------------------------------------------------------------


def _pipeline(ranks, every):
    """What each stage computes and waits for its neighbours, in the mean over its ranks."""
    stages = defaultdict(dict)
    for rank, one in every.items():
        if ranks[rank].stage >= 0 and (means := _stage(ranks[rank], one)):
            stages[ranks[rank].stage][rank] = means
    if sum(map(len, stages.values())) < 2:
        return
    usual = fmean(_of_stage(mine, "compute_ns") for mine in stages.values())
    most = max(sorted(stages), key=lambda stage: _of_stage(stages[stage], "compute_ns"))
    for stage, mine in stages.items():
        means = {name: _of_stage(mine, name) for name in ("compute_ns", "bubble_ns", "step_ns")}
        said = {"ranks": len(mine), **{k: round(ns) for k, ns in means.items()}, "slices": []}
        rank = max(sorted(mine), key=lambda one: mine[one]["bubble_ns"])
        value = percent(means["bubble_ns"], means["step_ns"])
        yield ("pipeline-bubbles", rank, f"stage {stage}"), {"value": value, **said}
        if len(stages) > 1 and stage == most:
            more = means["compute_ns"] - usual
            rank = max(sorted(mine), key=lambda one: mine[one]["compute_ns"])
            yield ("stage-imbalance", rank, f"stage {stage}"), {
                "value": percent(more, usual), "saves": more, "mean_of_stages_ns": round(usual),
                **said,
            }  # fmt: skip


def _of_stage(mine, name):
    return fmean(one[name] for one in mine.values())


def _stage(rank, known):
    """Means over the covered, marked steps of a rank that sends or receives: computing, length,
    and the time in which messages are under way and no other collective, and nothing is computed.
    """
    rows = kernels(rank, "comm")
    messages = [row for row in rows if _MESSAGE.search(row.name)]
    steps = [s for s in known.measured() if s.source == "timeline" and not s.whole_range]
    if not messages or not steps or len(known.sets) != 1:
        return None
    [sets] = known.sets.values()
    others = [row for row in rows if row not in messages]
    alone = minus(*(union((row.start, row.end) for row in one) for one in (messages, others)))
    alone = minus(alone, union(sets.get("computing", ())))
    return {
        "compute_ns": fmean(known.figures(step)["computing"] for step in steps),
        "bubble_ns": fmean(total(common(alone, [step.window])) for step in steps),
        "step_ns": fmean(step.window[1] - step.window[0] for step in steps),
    }


# -- steps --------------------------------------------------------------------------------


def _parts(rank, known):
    if not known.steps or any(step.whole_range for step in known.steps):
        return
    parts = defaultdict(list)
    for row in sorted(rank.rows, key=lambda row: row.start):
        if row.cls in ("iteration", "interval", "fp_bp", "tail", "reduce") and row.step >= 0:
            parts[row.cls].append(row)
    steps = parts.get("iteration", [])
    for graph in sorted({row.graph for row in steps}):
        where = f"graph {graph}" if graph >= 0 else ""
        mine = {cls: [r for r in rows if r.graph == graph] for cls, rows in parts.items()}
        yield from _gaps(where, graph, mine, known)
        for rule, cls in (("forward-backward", "fp_bp"), ("long-tail", "tail")):
            yield from _share_of_steps(rule, where, mine, cls)
        yield from _first(where, mine.get("iteration", []), known)


def _lasts(steps, known):
    """Spans of steps: of those that the host marked the window on the device, if recorded."""
    windows = {(s.number, s.start): s.window for s in known.steps if s.graph < 0 and s.covered}
    return [windows.get((row.step, row.start), (row.start, row.end)) for row in steps]


def _gaps(where, graph, mine, known):
    """The time between device windows in which nothing runs, where such windows follow one another,
    else pauses as marked."""
    rows, steps = mine.get("interval", []), mine["iteration"]
    numbers = {row.step for row in steps}
    lengths = [row.dur for row in rows if row.step in numbers]
    shown, compared = rows, steps
    measured = [s.pause for s in known.steps if s.graph == graph and s.pause is not None]
    if graph < 0 or (rows and measured):
        lengths = measured
        recorded = {(s.number, s.start) for s in known.steps if s.graph == graph and s.covered}
        compared = [row for row in steps if (row.step, row.start) in recorded]
    if not rows and graph < 0:
        windows = union(s.window for s in known.steps if s.graph == graph)
        free = [row for lanes in known.lanes.values() for row in lanes["free"]]
        shown = [r for r in free if not any(low <= r.start < high for low, high in windows)]
    if any(lengths):
        pauses, worked = sum(lengths), sum(e - s for s, e in _lasts(compared, known))
        yield "iteration-gap", where, {
            "value": percent(pauses, pauses + worked), "saves": pauses / len(compared),
            "gaps": len(lengths), "per_step_ns": round(pauses / len(compared)),
            "mean_ns": round(fmean(lengths)), "median_ns": round(median(lengths)),
            "longest_ns": max(lengths),
            "step_mean_ns": round(fmean(row.dur for row in steps)),
            "slices": _longest(shown),
        }  # fmt: skip


def _share_of_steps(rule, where, mine, cls):
    """Of every step that has the part; of steps of one number it is the last that had begun."""
    steps, rows, reduces = mine["iteration"], mine.get(cls, []), mine.get("reduce", [])
    starts = defaultdict(list)
    for step in steps:
        starts[step.step].append(step)

    def of(row):
        begun = [step for step in starts[row.step] if step.start <= row.start]
        return (begun or starts[row.step][:1])[-1:]

    taken = defaultdict(int)
    for row in rows:
        for step in of(row):
            taken[id(step)] += row.dur
    kept = [step for step in steps if id(step) in taken and step.dur > 0]
    if not kept:
        return
    whole = sum(step.dur for step in kept)
    parts = [taken[id(step)] for step in kept]
    found = {
        "value": percent(sum(parts), whole), "steps": len(kept),
        "mean_ns": round(fmean(parts)), "saves": round(fmean(parts)),
        "step_mean_ns": round(whole / len(kept)), "slices": _longest(rows),
    }  # fmt: skip
    reduced = {id(step) for row in reduces for step in of(row)}
    if all(id(step) in reduced for step in kept):
        every = Length(union((row.start, row.end) for row in reduces))
        lengths = [every.within(step.start, step.end) for step in kept]
        found["reduce_percent"] = percent(sum(lengths), whole)
    yield rule, where, found


def _first(where, steps, known):
    if len(steps) > _FEWEST_STEPS:
        first, *others = (end - start for start, end in _lasts(steps, known))
        usual = median(others)
        yield "first-step", where, {
            "value": first / usual if usual else 0.0, "first_ns": first,
            "median_of_others_ns": round(usual), "slices": [steps[0].dur],
        }  # fmt: skip


# -- communication ------------------------------------------------------------------------


def _drawn(rank, told):
    """The length of the slice of the trace that shows what a table tells of: of its name, and most
    of its time; else as the table says."""
    end = told.start + told.dur
    shown = [
        (min(row.end, end) - max(row.start, told.start), row.dur)
        for row in rank.rows
        if row.slice and row.name == told.name
    ]
    inside, dur = max(shown, default=(0, told.dur), key=lambda pair: pair[0])
    return dur if 2 * inside > told.dur else told.dur


def _waits(rank, operations, steps):
    rows = [(one.row.dur, one.parts(), one.row) for one in operations]
    rows = [row for row in rows if None not in list(row[1].values())[:3]]
    slices = [_drawn(rank, row) for _, _, row in
              sorted(rows, key=lambda row: -row[1][PARTS[1]])[:SLICES_KEPT]]  # fmt: skip
    rows = [(dur, parts) for dur, parts, _ in rows]
    transit, wait, early = (sum(parts[name] for _, parts in rows) for name in PARTS[:3])
    if wait + transit:
        yield "communication-wait", "", {
            "value": percent(wait, wait + transit), "saves": wait / max(steps, 1),
            **({"steps": steps} if steps else {}),
            "operations": len(rows), "slices": slices,
            "elapsed_ns": sum(dur for dur, _ in rows), "wait_ns": wait,
            "before_first_transfer_ns": early, "transit_ns": transit,
        }  # fmt: skip


def _sent(rank, stated):
    """Packages by transport and size: (count, ns); of ranks whose timeline holds none by the
    profiler's table, where SDMA is the sum of two others."""
    links = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for row in rank.rows:
        if row.cls == "comm_task" and row.slice:
            size, link = number(row.args.get("size(Byte)")), text_of(row.args.get("link type", ""))
            if size > 0 and row.dur > 0 and link not in ("", "ON_CHIP"):
                links[link][size][0] += 1
                links[link][size][1] += row.dur
    if not links:
        told = {
            over: {n: both for n, both in sizes.items() if n > 0 and both[1] > 0}
            for over, sizes in stated.packages().items() if over not in ("LOCAL", "SDMA")
        }  # fmt: skip
        links = {over: sizes for over, sizes in told.items() if sizes}
    return links


def _packages(links, sdma_mb=32.0, rdma_mb=0.5, enough=0.8):
    """Packages too small to reach the bandwidth of larger ones, by transport."""
    for link, sizes in links.items():
        largest = (rdma_mb if "RDMA" in link.upper() else sdma_mb) * _MB
        speed = {size: size * count / time for size, (count, time) in sizes.items()}
        best = max(speed.values())
        small = list(takewhile(
            lambda size: size < largest and speed[size] < enough * best, sorted(sizes)  # noqa: B023
        ))  # fmt: skip
        if small:
            time = sum(sizes[size][1] for size in small)
            yield "small-packets", link, {
                "value": percent(time, sum(time for _, time in sizes.values())),
                "packages": sum(count for count, _ in sizes.values()),
                "small_packages": sum(sizes[size][0] for size in small),
                "largest_small_bytes": small[-1],
                "small_gbs": sum(size * sizes[size][0] for size in small) / time,
                "best_gbs": best, "slices": [],
            }  # fmt: skip


def _slow_links(table):
    sums = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for (rank, group, _, source, target, over), row in table.items():
        if rank is not None and source != target and row["Bytes"] > 0:
            both = sums[over][rank, group, source, target]
            both[0] += row["Bytes"]
            both[1] += row["Transit Time(ns)"]
    for over, links in sums.items():
        links = {key: both for key, both in links.items() if both[1] > 0}
        speeds = {key: size / time for key, (size, time) in links.items()}
        if len(speeds) < _FEWEST_LINKS:
            continue
        usual = median(speeds.values())
        spread = _SIGMA * median(abs(speed - usual) for speed in speeds.values())
        common = median(size for size, _ in links.values())
        for (rank, group, source, target), speed in speeds.items():
            size, time = links[rank, group, source, target]
            if speed < usual - _DEVIATIONS * spread and size >= _SMALL_LINK * common:
                yield ("slow-link", rank, f"{source} to {target} of {group or 'all'}, {over}"), {
                    "value": percent(speed, usual), "bandwidth_gbs": speed, "usual_gbs": usual,
                    "n_bytes": size, "time_ns": time,
                }  # fmt: skip


# -- operators, memory --------------------------------------------------------------------


def _operators(rank, host, steps):
    rows = kernels(rank, "compute") if host.fact.ascend else []
    if not rows:
        return
    types = typed(rank, host)
    spent, all_ns = defaultdict(int), sum(row.dur for row in rows)
    matched = []
    for row in rows:
        kind = types[id(row)][0]
        match = _CONVERSION.fullmatch(kind or row.name)
        if match:
            spent[match[1]] += row.dur
            matched.append(row)
    yield "format-conversion", "", {
        "value": percent(sum(spent.values()), all_ns), "count": len(matched),
        "saves": sum(spent.values()) / steps,
        **{f"{kind.lower()}_ns": ns for kind, ns in sorted(spent.items())},
        "compute_ns": all_ns, "slices": _longest(matched),
    }  # fmt: skip
    said = {id(row): text_of(row.args.get("Input Shapes", "")) for row in rows}
    matrices = [row for row in rows if _CUBE.fullmatch(types[id(row)][0])]
    cube = [row for row in matrices if said[id(row)].strip('"')]
    if cube:
        odd = [row for row in cube if not _aligned(said[id(row)])]
        cube_ns, odd_ns = (sum(row.dur for row in some) for some in (cube, odd))
        yield "unaligned-shapes", "", {
            "value": percent(odd_ns, cube_ns), "cube_ns": cube_ns, "unaligned_ns": odd_ns,
            "saves": odd_ns / steps,
            "slices": _longest(odd),
        }  # fmt: skip


def _aligned(shapes):
    """Whether the last two dimensions of both matrices are multiples of 16, or blocks."""
    for one in shapes.strip('" ').split(";")[:2]:
        dims = [int(digits) for digits in re.findall(r"\d{1,12}", one)]
        blocked = len(dims) >= 4 and dims[-2] == 16 and dims[-1] in (8, 16, 32)
        if len(dims) >= 2 and not blocked and any(dim % 16 for dim in dims[-2:]):
            return False
    return True


def _memory(rank):
    peaks = [
        max(size for _, size in samples) for _, measure, samples in curves(rank)
        if _MEASURES.fullmatch(measure) and not measure.startswith("CPU")
    ]  # fmt: skip
    if peaks:
        yield "memory-capacity", "", {"peak_bytes": whole(max(peaks))}
