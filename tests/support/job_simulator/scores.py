"""Right, wrong, or nothing said: one job, and many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .jobs import Job
from .observed import Clocks, Said, clocks, verdict
from .simulate import Run, run
from .truth import Truth, instants, truth

WRONG_TIMES = 3.0
"""An offset off by more than so many times the stated error is confidently wrong."""

REFUTED_NS = 50_000_000
"""Stamps that are further apart than this are refuted by any collective of these jobs."""


@dataclass(frozen=True)
class Outcome:
    """A verdict on one job.

    Attributes:
        seed: of the job.
        result: one of :data:`RESULTS`.
        steps_wrong: a step's line names a rank that is not slow, and does not say that it may be
            chance.
        gain: stated over true gain, NaN if none is stated.
        true: what is.
    """

    seed: int
    result: str
    steps_wrong: bool
    gain: float
    true: Truth


RESULTS = ("false", "right", "partial", "kind", "wrong", "nothing")
"""
``false``: somebody is named, and nobody (that could be known) is slow. ``right``: all those who are
slow, as what they are; nobody where nobody is. ``partial``: some of them. ``kind``: the ranks are
right, their kind (constant, intermittent) is not. ``wrong``: one who is not slow. ``nothing``:
no verdict, though somebody is slow.
"""


def straggler_outcome(job: Job) -> tuple[Outcome, Said]:
    """Simulate a job, let it be judged, and compare."""
    happened = run(job)
    true, found = truth(happened), verdict(happened)
    gain = found.gain_ns / true.gain_ns if found.gain_ns and true.gain_ns > 0 else np.nan
    stray = found.stated - true.ranks
    return Outcome(job.seed, result(true, found, job.steps), bool(stray), gain, true), found


def result(true: Truth, found: Said, steps: int) -> str:
    """One of :data:`RESULTS`."""
    if true.kind in ("nobody", "hidden"):
        strangers = found.named or found.groups
        return "false" if strangers else "right"
    if true.kind == "group":
        if found.named:
            return "wrong"
        return "right" if true.ranks in found.groups else "wrong" if found.groups else "nothing"
    if found.named - true.ranks or found.groups:
        return "wrong"
    if true.kind == "once" or steps == 1:  # one observation proves no pattern: it is to be stated
        if found.constant:
            return "kind"
        seen = found.intermittent or set(found.steps.values()) == true.ranks
        return "right" if seen else "nothing"
    if not found.named:
        return "nothing" if true.clear else "right"
    if found.named != true.ranks:
        return "partial"
    same = found.constant if true.kind == "constant" else found.intermittent
    return "right" if same == true.ranks else "kind"


@dataclass(frozen=True)
class Fits:
    """What was made of the clocks of one job.

    Attributes:
        seed: of the job.
        ranks: that could have been fitted.
        error_ns: (fits,) as stated.
        apart_ns: (fits, 3) true errors at the beginning, middle and end of the rank's capture.
        checked: (fits,) true errors where a clock that was set would have shown, as is stated: the
            largest at 401 instants.
        possible: (fits,) whether there is any truth: false for captures of different runs.
        unchecked: (fits,) whether an issue says that part of the capture is not checked.
        kept:  ranks whose refuted stamps were kept without an issue: wrong by those of the leading
            rank, or, where nobody leads, any.
    """

    seed: int
    ranks: int
    error_ns: np.ndarray
    apart_ns: np.ndarray
    checked: np.ndarray
    possible: np.ndarray
    unchecked: np.ndarray
    kept: int

    @property
    def inside(self) -> np.ndarray:
        """(fits, 3): whether the interval holds the truth."""
        return (np.abs(self.apart_ns) <= self.error_ns[:, None] + 1) & self.possible[:, None]

    @property
    def wrong(self) -> np.ndarray:
        """(fits,): whether it is off by more than :data:`WRONG_TIMES` what is stated, anywhere."""
        return self._beyond(np.abs(self.apart_ns).max(axis=1, initial=0))

    @property
    def surely_wrong(self) -> np.ndarray:
        """(fits,): the same where a clock that was set would have shown."""
        return self._beyond(self.checked)

    def _beyond(self, most: np.ndarray) -> np.ndarray:
        return (most > WRONG_TIMES * (self.error_ns + 1)) | ~self.possible


def clock_outcomes(job: Job, methods: Sequence[str]) -> list[tuple[Fits, str]]:
    """Simulate a job, let its clocks be aligned by each method, and compare."""
    happened = run(job)
    return [_fits(happened, found) for found in clocks(happened, methods)]


def _fits(happened: Run, found: Clocks) -> tuple[Fits, str]:
    job = happened.job
    ranks = sorted(found.error_ns)
    apart = [found.apart_ns(happened, r, instants(happened, r)) for r in ranks]
    strange = [(r in job.foreign) != (found.lead in job.foreign) for r in ranks]
    offsets = {r: job.clock(r).offset_ns for r in job.captured}
    among = [offsets[found.lead]] if found.lead >= 0 else list(offsets.values())
    refuted = {r for r in found.kept if max(abs(offsets[r] - ns) for ns in among) > REFUTED_NS}
    checked = [_checked(happened, found, r) for r in ranks]
    fits = Fits(
        job.seed,
        len(job.captured) - 1,
        np.array([found.error_ns[r] for r in ranks], np.int64),
        np.array(apart, np.int64).reshape(-1, 3),
        np.array(checked, np.int64),
        ~np.array(strange, bool),
        np.array([r in found.unchecked for r in ranks], bool),
        len(refuted),
    )
    return fits, found.text


def _checked(happened: Run, found: Clocks, rank: int) -> int:
    """The largest error of a fit where it is said to be checked, ns.

    A clock that is set back shows some times twice; meant are those from the first match on.
    """
    first, _, last = instants(happened, rank).tolist()
    true_ns = np.linspace(0, last - first, 401).astype(np.int64) + first
    local = happened.job.clock(rank).local(true_ns)
    low, high = found.checked_ns.get(rank, (0, -1))
    begun = np.flatnonzero(local < low)[-1:] + 1
    over = np.flatnonzero(local > high)
    over = over[over >= begun.sum()][:1]
    checked = true_ns[begun.sum() : over.sum() if len(over) else None]
    apart = found.apart_ns(happened, rank, checked)
    return int(np.abs(apart).max(initial=0))


def straggler_row(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Shares over many jobs; ``clear`` is that of jobs whose truth is no matter of a limit, and
    ``named`` the share of these that is right."""
    count = len(outcomes)
    row = {name: sum(o.result == name for o in outcomes) / count for name in RESULTS}
    clear = [o for o in outcomes if o.true.clear]
    row["clear"] = len(clear) / count
    row["named"] = sum(o.result == "right" for o in clear) / len(clear) if clear else np.nan
    row["steps wrong"] = sum(o.steps_wrong for o in outcomes) / count
    gains = [o.gain for o in outcomes if o.gain == o.gain]
    row["gain"] = float(np.median(gains)) if gains else np.nan
    return row


def clock_row(fits: Sequence[Fits]) -> dict[str, float]:
    """Shares over the fits of many jobs: accepted, of these covered at the start, in the middle
    and at the end, and wrong, anywhere, where that is said to be checked, and where no issue says
    that it is not; the median of stated errors, us; refuted stamps that were kept."""
    total = sum(f.ranks for f in fits)
    count = sum(len(f.error_ns) for f in fits)
    row = {"accepted": count / max(total, 1)}
    if count:
        inside = np.concatenate([f.inside for f in fits]).mean(axis=0)
        row |= dict(zip(("start", "middle", "end"), inside.tolist(), strict=True))
        row["wrong"] = float(np.concatenate([f.wrong for f in fits]).mean())
        row["surely wrong"] = float(np.concatenate([f.surely_wrong for f in fits]).mean())
        row["unsaid"] = float(np.concatenate([f.wrong & ~f.unchecked for f in fits]).mean())
        row["error us"] = float(np.median(np.concatenate([f.error_ns for f in fits]))) / 1e3
        row["worst us"] = max(
            float(np.abs(f.apart_ns[f.possible]).max(initial=0)) for f in fits) / 1e3  # fmt: skip
    row["kept"] = sum(f.kept > 0 for f in fits) / len(fits)
    return row
