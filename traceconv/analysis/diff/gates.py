"""Gates: by how much a figure may get worse, and whether it is proven that it did, or did not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.diff.comparison import (
    CLASSES,
    CRITICAL,
    PAUSE,
    Items,
    RunComparison,
    class_masks,
)
from traceconv.analysis.diff.matching import plain
from traceconv.analysis.diff.significance import half_widths
from traceconv.analysis.rank_facts import Sort
from traceconv.core.choices import unknown
from traceconv.core.errors import OptionError
from traceconv.core.patterns import lazy_regex

METRICS = (*(name for name in CLASSES if name != CRITICAL), PAUSE)
"""Figures of a step that a gate may be on."""

OPERATOR, COLLECTIVE = "op", "comm"
"""Before a colon: items of one operator or kernel, or of one kind of collective, by name; ``*``
stands for anything."""

_GATE = lazy_regex(r"\s*(\S.*?)\s*>\s*(\d+(?:\.\d+)?)\s*(%|ns|us|µs|ms|s)\s*\Z", re.DOTALL)
_NAMED = 8  # names of existing items
_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


class Outcome(StrEnum):
    """What becomes of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    UNSURE = "no verdict"


@dataclass(frozen=True)
class Gate:
    """How much more a figure may take.

    Attributes:
        text:   as the user wrote it.
        metric: one of :data:`METRICS`, ``op:NAME`` or ``comm:KIND``.
        limit:  percent of what it took before, or ns.
        percent: whether it is percent.
    """

    text: str
    metric: str
    limit: float
    percent: bool

    @classmethod
    def of(cls, text: str, option: str = "fail_on") -> Gate:
        """The gate of a text like ``step>2%``, ``exposed_comm>500us`` or ``op:MatMul>3%``.

        Raises:
            OptionError: it is none.
        """
        match = _GATE.match(text)
        if not match:
            valid = "a gate like step>2%, exposed_comm>500us or op:MatMul>3%"
            raise OptionError(f"{text!r} is not {valid}", option)
        metric, percent = match[1], match[3] == "%"
        kind, colon, name = metric.partition(":")
        if metric not in METRICS and not (colon and kind in (OPERATOR, COLLECTIVE) and name):
            figures = [*METRICS, f"{OPERATOR}:NAME", f"{COLLECTIVE}:KIND"]
            raise OptionError(unknown("figure", metric, figures), option)
        limit = float(match[2]) * (1.0 if percent else _UNITS[match[3]])
        return cls(text.strip(), metric, limit, percent)


@dataclass(frozen=True)
class GateResult:
    """The figure of a gate.

    Attributes:
        before_ns, after_ns: means per step.
        half_ns: half the width of the interval of the difference; infinite if unknown.
        outcome: whether it is proven to be beyond the limit, or within.
    """

    gate: Gate
    before_ns: int
    after_ns: int
    half_ns: float
    outcome: Outcome

    @property
    def delta_ns(self) -> int:
        """The difference, after minus before."""
        return self.after_ns - self.before_ns


def judged(comparison: RunComparison, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
    """The gates of a comparison; all intervals hold together.

    Raises:
        OptionError: neither run has the operator or collective.
    """
    return tuple(_judged(comparison, gate, len(gates)) for gate in gates)


def _judged(comparison: RunComparison, gate: Gate, among: int) -> GateResult:
    items, series = comparison.items, comparison.series
    unknown_input = gate.metric == "input_wait" and not comparison.input_known
    if items is None or series is None or comparison.classes is None or unknown_input:
        return GateResult(gate, 0, 0, np.inf, Outcome.UNSURE)
    if gate.metric == PAUSE:
        names, rows = comparison.classes.keys["name"].tolist(), comparison.classes
        if PAUSE in names:
            row = names.index(PAUSE)
            before, after = int(rows.before_ns[row]), int(rows.after_ns[row])
            half = float(rows.half_ns[row])
        elif comparison.pauses_known:  # and no step is followed by one
            before, after, half = 0, 0, 0.0
        else:
            return GateResult(gate, 0, 0, np.inf, Outcome.UNSURE)
    else:
        mask = _mask(items, gate.metric)
        before, after = int(items.before_ns[mask].sum()), int(items.after_ns[mask].sum())
        summed = [
            run_series.rows(mask).summed(np.zeros(int(mask.sum()), np.intp), 1)
            for run_series in series
        ]
        half = float(half_widths(summed[0], summed[1], "step", among=among)[0])
        half = 0.0 if comparison.same else half
    limit = gate.limit * before / 100 if gate.percent else gate.limit
    outcome = Outcome.UNSURE
    if not comparison.reasons:
        low, high = after - before - half, after - before + half
        outcome = Outcome.FAILED if low > limit else Outcome.UNSURE
        outcome = Outcome.PASSED if high <= limit else outcome
    return GateResult(gate, before, after, half, outcome)


def _mask(items: Items, metric: str) -> NDArray[np.bool_]:
    """The items of a figure.

    Raises:
        OptionError: there is no such operator or collective.
    """
    if metric in METRICS:
        return class_masks(items)[metric]
    kind, _, name = metric.partition(":")
    sort = Sort.COMPUTE if kind == OPERATOR else Sort.COMMUNICATION
    of_sort = items.keys["sort"] == sort
    is_named = np.zeros(len(items), bool)
    all_names: dict[str, None] = {}
    for columns in (items.keys, items.was):
        for row in of_sort.nonzero()[0].tolist():
            names = [columns["name"][row], plain(columns["name"][row])]
            names += [columns["type"][row]] if kind == OPERATOR else []
            all_names.update(dict.fromkeys(filter(None, names)))
            is_named[row] |= any(
                candidate == name or fnmatchcase(candidate, name)
                for candidate in names
                if candidate
            )
    if not is_named.any():
        from difflib import get_close_matches

        kind_word = "operator" if kind == OPERATOR else "collective"
        near = get_close_matches(name, all_names, _NAMED, 0.3) or sorted(all_names)[:_NAMED]
        hint = f"; there are {', '.join(near)}" if near else ""
        raise OptionError(f"no {kind_word} {name!r} in either run{hint}", "fail_on")
    return is_named
