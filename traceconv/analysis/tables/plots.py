"""Drawings of figures with matplotlib, for notebooks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from traceconv.core.choices import unknown
from traceconv.core.columns import F64
from traceconv.core.errors import OptionError
from traceconv.core.frames import extra
from traceconv.core.side_tables import DataTable

_PARTS = (
    ("Pure Compute(ns)", "computing", "#2b6cb0"),
    ("Communication Overlapped(ns)", "computing and communicating", "#86b8e8"),
    ("Communication Not Overlapped(ns)", "communication not overlapped", "#e0762b"),
    ("Idle(ns)", "idle", "#c6ced6"),
)
KINDS = ("overlap", "ranks")
"""Drawings of the table "overlap"."""

_TICK_CHARACTERS = 100
"""Of the labels that fit below axes as wide as :func:`axes` makes them."""

_UNKNOWN = "#c6ced6"


def axes(ax: Any) -> Any:
    """The axes to draw on: ``ax``, or new ones without it.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if ax is not None:
        return ax
    extra("matplotlib", "plot")
    pyplot = import_module("matplotlib.pyplot")
    return pyplot.subplots(figsize=(9, 3.5), layout="constrained")[1]


def overlap(table: DataTable, kind: str, ax: Any) -> Any:
    """Stacked bars: what steps consist of, in ms.

    Raises:
        OptionError: ``kind`` is none of :data:`KINDS`.
        MissingExtraError: matplotlib is not installed.
    """
    if kind not in KINDS:
        raise OptionError(unknown("drawing", kind, KINDS), "kind")
    columns = table.columns
    rows = np.flatnonzero((columns["Rank"] >= 0) & (columns["Known(ns)"] > 0))
    steps = rows[columns["Step"][rows] >= 0]
    rows = steps if len(steps) else rows
    rank, step = columns["Rank"][rows], columns["Step"][rows]
    if kind == "ranks":
        ranks, bar = np.unique(rank, return_inverse=True)
        names = [f"rank {number}" for number in ranks.tolist()]
        count = np.bincount(bar)
    else:
        bar, count = np.arange(len(rows)), np.ones(len(rows), np.int64)
        several = len(set(rank.tolist())) > 1
        names = [f"{r}: {s}" if several else str(s)
                 for r, s in zip(rank.tolist(), step.tolist(), strict=True)]  # fmt: skip
    ax, bottom = axes(ax), np.zeros(len(names))
    for key, words, colour in _PARTS:
        length = np.bincount(bar, columns[key][rows], len(names)) / count / 1e6
        ax.bar(np.arange(len(names)), length, bottom=bottom, width=0.9, label=words, color=colour)
        bottom += length
    spacing = -(-len(names) * (max(map(len, names), default=0) + 2) // _TICK_CHARACTERS)
    ax.set_xticks(range(0, len(names), spacing), names[::spacing])
    ax.set_xlabel("rank" if kind == "ranks" else "step" if len(set(rank)) == 1 else "rank: step")
    ax.set_ylabel("ms")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=4, frameon=False)
    return ax


def heat_map(excess_ns: F64, ranks: list[int], steps: list[int], than: str, ax: Any) -> Any:
    """How much longer than others each rank takes in each step, in ms; unknown cells are grey.

    Args:
        excess_ns: (steps, ranks), NaN where unknown.
        than: what a rank is compared with.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    ax = axes(ax)
    image = ax.imshow(np.maximum(excess_ns, 0).T / 1e6, aspect="auto", cmap="OrRd")
    for ticks, names in ((ax.set_xticks, steps), (ax.set_yticks, ranks)):
        spacing = -(-len(names) // 16)
        ticks(range(0, len(names), spacing), [str(number) for number in names[::spacing]])
    ax.set_xlabel("step")
    ax.set_ylabel("rank")
    ax.figure.colorbar(image, ax=ax, label=f"ms longer than {than}")
    ax.set_facecolor(_UNKNOWN)
    if np.isnan(excess_ns).any():
        patch = ax.bar(0, 0, color=_UNKNOWN, label="unknown")
        ax.legend(handles=[patch], loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    return ax
