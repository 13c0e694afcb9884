"""The file in which what a report needs of one rank is set aside: arrays, and their description.

It is an ``.npz`` without pickles: the member ``json`` (UTF-8) says which of the numbered arrays is
which column, and holds all text.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traceconv.alignment.collective_records import CollectiveRecords, Group
from traceconv.analysis.rules import findings
from traceconv.analysis.stragglers import verdict as stragglers
from traceconv.analysis.tables.definition import Facts as TableFacts
from traceconv.core.errors import MalformedInputError
from traceconv.core.side_tables import Columns
from traceconv.io.atomic import replacing
from traceconv.io.temporary import ADVICE

VERSION = 1

SUFFIX = ".facts"


@dataclass(frozen=True)
class Facts:
    """What a report needs of one rank.

    Attributes:
        rank:     which.
        start_ns: its earliest event, on its own clock; None if it has none.
        tables, lateness, rules: facts of :mod:`traceconv.analysis`.
        moments:  of :func:`traceconv.report.excerpts.facts`.
        unread:   why tables of the profiler could not be looked at.
    """

    rank: int
    start_ns: int | None
    tables: TableFacts
    lateness: stragglers.Facts
    rules: findings.Facts
    moments: Mapping[str, Columns]
    unread: tuple[str, ...] = ()


class _Book:
    """Columns on their way into a file: numbers as arrays, texts in the description."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def put(self, column: Any) -> Any:
        if column.dtype == object:
            return {"texts": column.tolist()}
        self.arrays.append(column)
        return len(self.arrays) - 1

    def all(self, columns: Columns) -> dict[str, Any]:
        return {heading: self.put(column) for heading, column in columns.items()}


def save(facts: Facts, path: Path) -> None:
    """Write ``facts`` to ``path``, which appears when the file is complete.

    Raises:
        OutputError: it cannot be written.
    """
    book = _Book()
    known = facts.lateness.evidence
    told = {
        "version": VERSION,
        "rank": facts.rank,
        "start_ns": facts.start_ns,
        "tables": {name: book.all(columns) for name, columns in facts.tables.tables.items()},
        "moments": {name: book.all(columns) for name, columns in facts.moments.items()},
        "evidence": book.all(_columns(known)),
        "kinds": known.kinds,
        "groups": [list(vars(group).values()) for group in known.groups],
        "parts": book.put(facts.lateness.parts),
        "rules": facts.rules.as_dict(),
        "unread": facts.unread,
    }
    text = np.frombuffer(json.dumps(told).encode(), np.uint8)
    with replacing(path, ADVICE) as file:
        np.savez(file, json=text, **{f"a{i}": a for i, a in enumerate(book.arrays)})


def _columns(evidence: CollectiveRecords) -> Columns:
    return {k: v for k, v in vars(evidence).items() if isinstance(v, np.ndarray)}


def load(path: Path) -> Facts:
    """The facts in a file.

    Raises:
        MalformedInputError: it holds none.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return _facts(file)
    except (
        OSError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError,
        RecursionError, zipfile.BadZipFile,
    ) as e:  # fmt: skip
        raise MalformedInputError(str(path), "", f"holds no facts of a rank: {e}") from e


def _facts(file: Any) -> Facts:
    told = json.loads(file["json"].tobytes())
    if told["version"] != VERSION:
        raise ValueError(f"of version {told['version']}, not {VERSION}")

    def column(place: Any) -> Any:
        if isinstance(place, int):
            array = file[f"a{place}"]
            if array.dtype.kind not in "iuf":
                raise ValueError(f"a column of type {array.dtype}")
            return array
        texts = np.empty(len(place["texts"]), object)
        texts[:] = [str(text) for text in place["texts"]]
        return texts

    def every(named: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        return {
            name: {heading: column(place) for heading, place in columns.items()}
            for name, columns in named.items()
        }

    rank = told["rank"]
    evidence = CollectiveRecords(
        rank=rank,
        kinds=tuple(told["kinds"]),
        groups=tuple(Group(*group) for group in told["groups"]),
        **every({"": told["evidence"]})[""],
    )
    return Facts(
        rank,
        told["start_ns"],
        TableFacts(rank, every(told["tables"])),
        stragglers.Facts(evidence, column(told["parts"])),
        findings.Facts.of_dict(told["rules"]),
        every(told["moments"]),
        tuple(told["unread"]),
    )
