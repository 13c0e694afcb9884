"""Rows collected one by one and handed over in batches, for logs that are read record by record."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.clock import INT64_MAX
from traceconv.model import Kind, OpClass

BATCH_ROWS = 32768


class Slices:
    """Collects slices and instants; :meth:`flush` when all are there."""

    def __init__(self, build: TraceBuilder) -> None:
        self._build = build
        self._rows: list[tuple[int, int, int, int, int, int, int]] = []
        self._args: list[bytes] = []

    def add(
        self,
        track: int,
        start_ns: int,
        dur_ns: int,
        name: str,
        op: OpClass,
        args: bytes = b"",
        step: int = -1,
        kind: Kind = Kind.SLICE,
        where: str = "",
    ) -> None:
        """Add one row; one outside int64 is booked.

        Args:
            args:  a JSON object, b"" for none.
            where: place of the record, for messages.
        """
        word = "slice" if kind is Kind.SLICE else "instant"
        self._build.seen(word)
        if start_ns < -INT64_MAX or max(start_ns, 0) + dur_ns > INT64_MAX:
            self._build.skip("bad-time", where, kind=word)
            return
        self._rows.append((track, start_ns, dur_ns, self._build.string(name), op, step, kind))
        self._args.append(args)
        if len(self._rows) == BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Hand over what is there."""
        if not self._rows:
            return
        track, start, dur, name, op, step, kind = zip(*self._rows, strict=True)
        length = np.fromiter(map(len, self._args), np.int32, len(self._args))
        ids = np.full(len(length), -1, np.int32)
        some = length > 0
        first = self._build.args_bytes(b"".join(self._args), length[some])
        ids[some] = np.arange(first, first + int(some.sum()))
        columns: dict[str, Any] = {
            "track": track,
            "name": name,
            "op": op,
            "step": step,
            "kind": kind,
        }
        self._build.extend(
            start_ns=np.array(start, np.int64),
            dur_ns=np.array(dur, np.int64),
            args=ids,
            **{key: np.array(column, np.int32) for key, column in columns.items()},
        )
        self._rows, self._args = [], []
