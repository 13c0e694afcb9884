"""What a step loses: of the measured steps of each rank the mean of every class of lost time, then
the mean over ranks; and the line that names them."""

from dataclasses import dataclass

EXPOSED, LATE, INPUT, IDLE, COPIES, PAUSE, COMPUTING = (
    "exposed",
    "late",
    "input",
    "idle",
    "copies",
    "pause",
    "computing",
)
UNCLASSIFIED = "unclassified"  # fmt: skip
_WORDS = {
    EXPOSED: "exposed communication", INPUT: "waiting for input",
    IDLE: "idle", COPIES: "exposed memory copies", PAUSE: "gaps between steps",
}  # fmt: skip


@dataclass(frozen=True)
class Losses:
    """Of one rank.

    Attributes:
        steps: how many are measured; 1 where the capture counts as one; 0 if nothing is known.
        marked: whether these are steps.
        length: their known time, ns.
        per: ns per step by class; a class that is unknown is not in it.
        waited: of how many steps it is known how long they wait for input.
        devices: of the rank; lengths are means over them.
        gaps: how many between steps are known.
        stated: whether all of it is from the profiler's own table.
    """

    steps: int = 0
    marked: bool = True
    length: int = 0
    per: dict = None
    stated: bool = False
    waited: int = 0
    devices: int = 1
    gaps: int = 0

    @classmethod
    def of(cls, known):
        """Those of :class:`.steps.Steps`, or of a rank of which there is no trace: None."""
        if known is None:
            return cls(per={})
        steps = known.measured()
        pieces = [known.figures(step) for step in steps]
        stated = bool(steps) and all(step.stated for step in steps)
        if not known.sets and known.only_stated:  # the timeline has no work of the device
            steps = pieces = [figures for _, figures in known.fact.stated.known()]
            stated = True
        marked = bool(pieces) and (stated or not any(step.whole_range for step in steps))
        if not pieces and known.sets:
            pieces = [known.sums()] if known.sums()["known"] else []
        if not any(piece["computing"] or piece["unclassified"] for piece in pieces):
            return cls(per={})
        n = len(pieces) * known.devices
        sums = {
            name: sum(piece[name] or 0 for piece in pieces)
            for name in ("known", "computing", "not_overlapped", "free", "unclassified")
        }
        waits = [piece["input_wait"] for piece in pieces] if steps else []
        waits = [ns for ns in waits if ns is not None]
        busy = sums["computing"] + sums["not_overlapped"]
        per = {
            COMPUTING: sums["computing"] / n, UNCLASSIFIED: sums["unclassified"] / n,
            EXPOSED: sums["not_overlapped"] / n,
            IDLE: (sums["free"] - sum(waits)) / n,
            COPIES: (sums["known"] - busy - sums["free"] - sums["unclassified"]) / n,
        }  # fmt: skip
        if waits:
            per[INPUT] = sum(waits) / n
        pauses = [s.pause for s in known.measured() if steps is not pieces and s.pause is not None]
        if pauses:
            per[PAUSE] = sum(pauses) / (len(pieces) * known.devices)
        return cls(len(pieces), marked, sums["known"] / known.devices, per, stated, len(waits),
                   known.devices, len(pauses))  # fmt: skip


@dataclass(frozen=True)
class Loss:
    """A class of lost time, ns per step, and the rank or stage that others wait for.

    Attributes:
        other: whether a part of the class is named as waiting for a rank or stage.
    """

    name: str
    ns: float
    rank: int | None = None
    stage: int | None = None
    bound: str = ""
    other: bool = False

    @property
    def words(self):
        """Its name in a headline."""
        if self.name == LATE:
            who = f"stage {self.stage}" if self.rank is None else f"rank {self.rank}"
            return f"waiting for {who}"
        return f"{'other ' if self.other else ''}{_WORDS[self.name]}{self.bound}"


def lost(every, late):
    """The losses of all ranks, most first.

    Args:
        late: who comes late, whom they keep waiting, and for how long. No rank waits longer than
            it lost in exposed communication and idle time. Waiting is exposed communication as
            far as that goes, then idle time; a job waits for the mean over all ranks.
    """
    known = {rank: one for rank, one in every.items() if one.steps}
    if not known:
        return []
    found, waited = [], dict.fromkeys(known, 0)
    for one in late:
        before = sum(waited.values())
        for rank in waited.keys() & set(one.others):
            whole = known[rank].per[EXPOSED] + known[rank].per[IDLE]
            waited[rank] = min(waited[rank] + one.per_step_ns, whole)
        mean = (sum(waited.values()) - before) / len(known)
        found.append(Loss(LATE, mean, *((None, one.stage) if one.stage >= 0 else (one.rank,))))
    of_exposed = {rank: min(ns, known[rank].per[EXPOSED]) for rank, ns in waited.items()}
    taken = {
        EXPOSED: sum(of_exposed.values()) / len(known),
        IDLE: (sum(waited.values()) - sum(of_exposed.values())) / len(known),
    }
    some = INPUT in {name for one in known.values() for name in one.per}
    some &= any(one.waited < one.steps for one in known.values())
    bounds = {INPUT: " at least", IDLE: " at most"} if some else {}
    if any(100 * one.per.get(UNCLASSIFIED, 0) * one.steps >= one.length for one in known.values()):
        bounds[EXPOSED] = " at most"
    if any(2 * one.gaps < one.steps - 1 for one in known.values()):
        bounds[PAUSE] = " at least"
    for name in (EXPOSED, INPUT, IDLE, COPIES, PAUSE):
        mean = sum(one.per.get(name, 0) for one in known.values()) / len(known)
        part = taken.get(name, 0)
        found.append(Loss(name, mean - part, bound=bounds.get(name, ""), other=part > 0))
    return sorted((one for one in found if one.ns > 0), key=lambda one: -one.ns)


def headline(every, late, size):
    """What the steps lose, in a line.

    Args:
        late: ranks and stages that others wait for; () of a merge, which compares no ranks.
        size: of what the ranks are a part, as (number, "job" or "group"); None if that is unknown.
    """
    who = ranks(every)
    if size and size[0] > len(every):
        who += f" ({len(every)} of {size[0]} ranks of the {size[1]})"
    known = [one for one in every.values() if one.steps]
    if not known:
        waits = [
            f"rank {one.rank} costs {length(one.per_step_ns)} per step; "
            for one in late
            if one.stage < 0
        ]
        unknown = "computing was not fully recorded in any step, so losses are unknown"
        return f"{who}: {''.join(waits)}{unknown}"
    step = sum(one.length / one.steps for one in known) / len(known)
    what = f"{length(step)} per step"
    if not all(one.marked for one in known):
        what = f"{length(step)} recorded"
    stated = sorted(rank for rank, one in every.items() if one.stated)
    if stated:
        of = "" if len(stated) == len(known) else f" of {ranks(stated).lower()}"
        what += f" (step_trace_time{of})"
    who = who if len(every) == 1 else f"Mean of {who[:1].lower()}{who[1:]}"
    found = lost(every, late)
    period = step
    pause = sum(one.ns for one in found if one.name == PAUSE)
    if 100 * pause >= step:
        period += pause
        gaps = "known gaps" if any(one.name == PAUSE and one.bound for one in found) else "gaps"
        what = f"step {length(step)} + {gaps} {length(pause)} = {length(period)}"
    unclassified = sum(one.per.get(UNCLASSIFIED, 0) for one in known) / len(known)
    if 100 * unclassified >= period:
        share = round(100 * unclassified / period)
        what += f", unclassified device work {length(unclassified)} ({share} %)"
    named = [one for one in found if one.ns >= period / 100]
    if not named:
        idle = sum(one.per.get(name, 0) for one in known for name in (INPUT, IDLE)) / len(known)
        busy = 100 - 100 * idle / step
        return f"{who}: {what}. Device busy {busy:.1f} %; no loss above 1 %"
    return f"{who}: {what}. Lost: " + ", ".join(
        f"{one.words} {length(one.ns)} ({round(100 * one.ns / period)} %)" for one in named
    )


def cards(every, late):
    """The share of a step, and of the gap behind it, that is computing, and each that is lost, by
    the name of its card."""
    known = [one for one in every.values() if one.steps]
    if not known:
        return {}
    found = [one for one in lost(every, late) if one.rank is None]
    period = sum(one.length / one.steps for one in known) / len(known)
    pause = sum(one.ns for one in found if one.name == PAUSE)
    period += pause if 100 * pause >= period else 0
    computing, unclassified = (
        sum(one.per[name] for one in known) / len(known) for name in (COMPUTING, UNCLASSIFIED)
    )
    working = {"Unclassified work": unclassified} if 100 * unclassified >= period else {}
    if computing or not working:
        working = {"Computing": computing, **working}
    named = {one.words.capitalize(): one.ns for one in found if one.ns >= period / 100}
    return {name: f"{round(100 * ns / period)} %"
            for name, ns in {**working, **named}.items()}  # fmt: skip


def ranks(every):
    """Ranks in words: those without a gap as a range."""
    numbers = sorted(every)
    if len(numbers) == 1:
        return f"Rank {numbers[0]}"
    run = numbers == list(range(numbers[0], numbers[-1] + 1))
    return "Ranks " + (f"{numbers[0]}-{numbers[-1]}" if run else ", ".join(map(str, numbers)))


def length(ns):
    """A length of time to three digits; whole ones are shown all."""
    scale, unit = next((s, u) for s, u in ((1e9, "s"), (1e6, "ms"), (0, "µs")) if ns >= 0.9995 * s)
    value = ns / (scale or 1e3)
    if value == int(value):
        return f"{int(value)} {unit}"
    if value < 1:
        return f"{value:.3g} {unit}"
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
