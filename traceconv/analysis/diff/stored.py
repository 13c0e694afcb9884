"""The items of a run as JSON values, which a report keeps so that a later run can be compared
with it when its captures are gone.

Texts are stored once, and a part of an item needs no more than a few digits; see
``schemas/json/report.schema.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from traceconv.analysis.diff.runs import Run
from traceconv.analysis.rank_facts import KEY, StepItems
from traceconv.analysis.tables.definition import texts
from traceconv.core.errors import MalformedInputError

VERSION = 1
"""Version of the section; others are refused."""

_PLACES = ("first", "last")


class _Rank(msgspec.Struct, forbid_unknown_fields=True):
    """One rank: columns of :class:`StepItems`, with texts as numbers; ``size`` parts of each item,
    which follow each other, and ``hidden_ns``, what of ``busy_ns`` is not theirs."""

    rank: int
    devices: int
    marked: bool
    vendor: str
    layers: tuple[str, ...]
    steps: dict[str, list[int]]
    items: dict[str, list[int]]
    size: list[int]
    at: list[int]
    ns: list[int]
    count: list[int]
    hidden_ns: list[int]


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    world_size: int
    texts: list[str]
    ranks: list[_Rank]


def stored(ranks: Mapping[int, StepItems], world_size: int) -> dict[str, Any]:
    """The items of all ranks, as JSON values.

    Args:
        world_size: ranks of the job, -1 if unknown.
    """
    number: dict[str, int] = {}
    rows = [_rank(rank, items, number) for rank, items in sorted(ranks.items())]
    plain: dict[str, Any] = msgspec.to_builtins(_Stored(VERSION, world_size, list(number), rows))
    return plain


def _rank(rank: int, items: StepItems, number: dict[str, int]) -> _Rank:
    columns = {
        key: [number.setdefault(text, len(number)) for text in items.items[key].tolist()]
        for key in (KEY if items.items else ())
    }
    columns |= {name: items.items[name].tolist() for name in (_PLACES if items.items else ())}
    parts = {name: column.tolist() for name, column in items.parts.items()}
    hidden = items.parts["busy_ns"] - items.parts["ns"] if items.parts else np.zeros(0, np.int64)
    size = np.bincount(items.parts["item"], minlength=len(items.items["sort"])) if parts else hidden
    return _Rank(
        rank,
        items.devices,
        items.marked,
        items.vendor,
        items.layers,
        {name: column.tolist() for name, column in items.steps.items()},
        columns,
        size.tolist(),
        parts.get("at", []),
        parts.get("ns", []),
        parts.get("count", []),
        hidden.tolist(),
    )


def restored(plain: Any, label: str) -> Run:
    """The run that :func:`stored` was made of.

    Args:
        plain: JSON values, of whatever kind.
        label: what the run is called, in messages, too.

    Raises:
        MalformedInputError: they are something else, or of another version.
    """
    version = plain.get("version") if isinstance(plain, dict) else None
    if version != VERSION:
        why = f"items of steps of version {version!r}, not {VERSION}; use one traceconv for both"
        raise MalformedInputError(label, "step_items", why)
    try:
        stored_run = msgspec.convert(plain, _Stored)
        ranks = {
            stored_rank.rank: _items(stored_rank, stored_run.texts)
            for stored_rank in stored_run.ranks
        }
        if len(ranks) < len(stored_run.ranks) or any(rank < 0 for rank in ranks):
            raise ValueError("a rank that is there twice, or below 0")
    except (msgspec.ValidationError, ValueError, IndexError, OverflowError) as e:
        raise MalformedInputError(label, "step_items", f"not the items of steps: {e}") from e
    return Run.of(label, ranks, stored_run.world_size)


def _items(stored_rank: _Rank, all_texts: Sequence[str]) -> StepItems:
    if not stored_rank.steps:
        return StepItems()
    if (
        min(
            map(min, (stored_rank.items[key] or [0] for key in KEY if key in stored_rank.items)),
            default=0,
        )
        < 0
    ):
        raise ValueError("a text below 0")
    key_columns = {
        key: texts([all_texts[n] for n in stored_rank.items.get(key, ())]) for key in KEY
    }
    places = {name: np.array(stored_rank.items.get(name, ()), np.int64) for name in _PLACES}
    ns = np.array(stored_rank.ns, np.int64)
    size = np.array(stored_rank.size, np.int64)
    if len(size) and (size.min() < 0 or size.sum() != len(ns)):
        raise ValueError("items and their parts do not fit together")
    hidden = np.array(stored_rank.hidden_ns, np.int64)
    if len(hidden) != len(ns):
        raise ValueError("columns differ in length")
    items = StepItems(
        devices=stored_rank.devices,
        marked=stored_rank.marked,
        vendor=stored_rank.vendor,
        layers=stored_rank.layers,
        steps={name: np.array(column, np.int64) for name, column in stored_rank.steps.items()},
        items={**key_columns, **places},
        parts={
            "item": np.repeat(np.arange(len(size)), size),
            "at": np.array(stored_rank.at, np.int64),
            "ns": ns,
            "count": np.array(stored_rank.count, np.int64),
            "busy_ns": ns + hidden,
        },
    )
    items.check()
    return items
