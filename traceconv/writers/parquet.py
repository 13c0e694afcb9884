"""Parquet: one file each for events, counters, flows, tracks and steps of all ranks.

*Files*: ``run.parquet`` has the events; ``run_counters.parquet``, ``run_flows.parquet``,
``run_tracks.parquet`` and ``run_steps.parquet`` have the rest. pandas, polars, DuckDB and Spark
open one file of all ranks by its name alone; a folder with a partition per rank needs a pattern in
DuckDB, and is thousands of small files for a large job. *Row groups*: of one rank each, and of at
most 262,144 rows, so that a filter on ``rank`` skips the others and memory is bounded. *Times*:
int64 ns, as in the model. *Metadata*: the facts of the run, under the key ``traceconv``.
*Columns*: :data:`traceconv.core.rank_tables.TABLES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

from traceconv.core.errors import Issues, SizeLimitError
from traceconv.core.frames import extra
from traceconv.core.model import Trace
from traceconv.core.rank_tables import (
    BLOCK,
    INTEGER,
    TABLES,
    TEXT,
    WORD,
    arrow_table,
    blocks,
    schema,
)
from traceconv.writers import Capacity, Costs, Document, Writer
from traceconv.writers.arguments import Rewritten, fetch, kept, strict

KINDS = {
    "events": ("slice", "instant"), "counters": ("counter",), "flows": ("flow",),
    "tracks": (), "steps": (),
}  # fmt: skip
"""The kinds of rows that each file has."""


class ParquetWriter:
    """Writes one table of all ranks. See :class:`traceconv.writers.TableWriter`."""

    name: ClassVar[str] = "parquet"
    title: ClassVar[str] = "Parquet: tables of events, counters, flows, tracks and steps"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)
    between: ClassVar[bytes] = b""
    member_capacity: ClassVar[Capacity | None] = None
    tables: ClassVar[tuple[str, ...]] = tuple(KINDS)

    def __init__(self, table: str = "events") -> None:
        """
        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        self._parquet = extra("pyarrow.parquet", "arrow")
        self.issues = Issues()
        self.kinds = KINDS[table]
        self._table = table
        self._tally = Rewritten()
        self._file = _Drained()

    def begin(self, document: Document) -> bytes:
        columns = TABLES[self._table]
        facts = json.dumps({**document.facts, "base_ns": str(document.base_ns)})
        self._selected = document.args
        self._writer = self._parquet.ParquetWriter(
            self._file,
            schema(self._table).with_metadata({"traceconv": facts}),
            compression="zstd",
            use_dictionary=[name for name, (kind, _) in columns.items() if kind in (WORD, TEXT)],
            column_encoding={
                name: "DELTA_BINARY_PACKED"
                for name, (kind, _) in columns.items()
                if kind == INTEGER
            },
        )
        return self._file.taken()

    def trace(self, trace: Trace) -> Iterator[bytes]:
        """One rank, a row group at a time."""
        for rows in blocks(trace, self._table):
            texts = None
            if self._table == "events":  # the selected arguments as JSON that any parser takes
                raws = kept(self._selected, self._tally)(fetch(trace.args, trace.events.args[rows]))
                raws = strict(raws, self._tally)
                texts = [raw.decode("utf-8", "replace") if raw else None for raw in raws]
            block = arrow_table(trace, self._table, rows, texts)
            if block.num_rows:
                self._writer.write_table(block, row_group_size=BLOCK)
                yield self._file.taken()
        for code, count in (
            ("args-dropped", self._tally.filtered),
            ("value-clipped", self._tally.numbers),
            ("bad-encoding", self._tally.surrogates),
        ):
            self.issues.add(code, count=count, rank=trace.rank)
        self._tally = Rewritten()

    def end(self) -> bytes:
        """The footer."""
        self._writer.close()
        return self._file.taken()

    def costs(self, trace: Trace, document: Document) -> Costs:
        """Refuse to say: columns are compressed together.

        Raises:
            SizeLimitError: always.
        """
        raise SizeLimitError(
            "Parquet files have no size limit: leave it out, or select ranks, steps or a window"
        )


class _Drained:
    """A file that pyarrow writes; its bytes are taken away as they come."""

    closed = False

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._size = 0

    def write(self, data: Any) -> int:
        block = bytes(data)
        self._blocks.append(block)
        self._size += len(block)
        return len(block)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def taken(self) -> bytes:
        content = b"".join(self._blocks)
        self._blocks.clear()
        return content


WRITER: type[Writer] = ParquetWriter
