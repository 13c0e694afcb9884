"""All that analyses, rules, reports and shards know of one rank: typed, small, serializable.

:func:`traceconv.analysis.summarize.summarize` makes a :class:`RankSummary` where the rank is read;
whatever compares ranks gets summaries and never sees an event. Between processes and in files a
summary is MessagePack: its version, then its fields; a column is its type, its shape and its bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.alignment.collective_records import SOMETIMES, CollectiveRecords
from traceconv.analysis.rank_facts import Losses, Operations, Recorded, StepItems
from traceconv.core.columns import I64
from traceconv.core.errors import Issue, Issues, MalformedInputError
from traceconv.core.job_shape import Placement
from traceconv.core.model import Coverage
from traceconv.core.side_tables import Columns
from traceconv.io.atomic import replacing
from traceconv.scratch.temporary import ADVICE

T = TypeVar("T")

_ONE_AT_A_TIME = Lock()
"""Two threads whose first decoding is of the same types end the process (msgspec 0.22.0)."""

VERSION = 14
"""Version of the encoded form; others are refused."""

SUFFIX = ".summary"

_NO_ROWS = np.zeros(0, np.int64)
_NO_NUMBERS = np.zeros(0, np.int32)

NO_COLLECTIVES = CollectiveRecords(
    -1, (), (), _NO_NUMBERS, _NO_NUMBERS, _NO_ROWS, _NO_NUMBERS, _NO_ROWS, _NO_ROWS
)
"""The records of a rank whose collectives were not requested."""


class RuleRecords(msgspec.Struct, frozen=True):
    """The facts of one rank that rules judge.

    Attributes:
        known:  encoded JSON values by id of the rule, see :meth:`of`; without rules that the rank
            has no data for. Decoded they would be most of the memory of a job.
        broken: what could not be read, by id of the rule that needs it.
    """

    known: dict[str, msgspec.Raw] = {}
    broken: dict[str, str] = {}

    def of(self, rule: str) -> dict[str, Any] | None:
        """The facts that a rule needs; None if the rank has no data for it."""
        encoded = self.known.get(rule)
        return None if encoded is None else msgspec.msgpack.decode(encoded, type=dict[str, Any])


def encoded_facts(facts: Mapping[str, Any]) -> msgspec.Raw:
    """The facts of a rule for :class:`RuleRecords`."""
    try:
        return msgspec.Raw(msgspec.msgpack.encode(facts))
    except UnicodeEncodeError:
        return msgspec.Raw(msgspec.msgpack.encode(_valid(facts)))


class AsRead(msgspec.Struct, frozen=True, eq=False):
    """A rank as it was read, before a view is made.

    Attributes:
        collectives: its communication operations.
        span_ns: earliest start and latest end of its events; None if it has none.
        issues:  what reading it noted.
    """

    collectives: CollectiveRecords = NO_COLLECTIVES
    span_ns: tuple[int, int] | None = None
    issues: tuple[Issue, ...] = ()


NOT_REQUESTED = AsRead()


class Excerpts(msgspec.Struct, frozen=True, eq=False):
    """Pieces of one rank that a report draws or points to.

    Attributes:
        calls:  every communication operation: start_ns, dur_ns, step, name, lane (at most 100 000).
        places: the longest stretches that are idle or of exposed communication: what, and the same.
        curves: memory and queues: title, unit, axis, x, y; downsampled to what can be drawn.
    """

    calls: Columns = {}
    places: Columns = {}
    curves: Columns = {}


class RankSummary(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The facts of one rank; parts that were not requested are empty.

    Times are int64 ns on the rank's own clock, unless it was corrected before it was summarized.

    Attributes:
        rank:     global rank.
        span_ns:  earliest start and latest end of its events; None if it has none.
        holds_nothing: whether its capture has neither events nor tables, whatever was selected.
        tables:   by name of the table, the columns that it needs of the rank; {} without data.
        rules:    what the rules need of it.
        collectives: its communication operations.
        as_read:  what a plan of clocks needs of it.
        links:    bytes and time of its links to other ranks, as of the table "link".
        excerpts: what a report draws of it.
        graphs, steps: numbers of those that the capture holds.
        coverage: which of its steps have device data.
        losses:   what its steps lose; where a table of a cluster is all there is, those of every
            rank that it names, by rank.
        items:    what every nanosecond of its steps went to.
        phases:   what it did as a stage of a pipeline, see :mod:`.pipeline_phases`.
        replay:   its operations, for the graph of the job; of the same ``collectives``.
        recorded: its operations in a dump of PyTorch's flight recorder.
        steps_marked: whether something marks its steps; else the whole range counts as one.
        partial:  names of those of the tables whose rows are known not to be all there was.
        world_size: ranks of the job, -1 if unknown.
        host:     name of its host, "" if unknown.
        placement: what its capture states of its place in the job; the coordinates of all ranks are
            made of it by :func:`traceconv.analysis.inferred_shape.job_shape`.
        issues:   what was lost or is in doubt.
        unread:   why tables of the profiler could not be looked at.
    """

    rank: int
    span_ns: tuple[int, int] | None = None
    holds_nothing: bool = False
    tables: dict[str, Columns] = {}
    rules: RuleRecords = RuleRecords()
    collectives: CollectiveRecords = NO_COLLECTIVES
    as_read: AsRead = NOT_REQUESTED
    links: Columns = {}
    excerpts: Excerpts = Excerpts()
    graphs: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    coverage: Coverage = Coverage()
    losses: dict[int, Losses] = {}
    items: StepItems = StepItems()
    phases: I64 = np.zeros((0, 3), np.int64)
    replay: Operations = msgspec.field(default_factory=Operations)
    recorded: Recorded = Recorded()
    steps_marked: bool = False
    partial: tuple[str, ...] = ()
    world_size: int = -1
    host: str = ""
    placement: Placement = Placement()
    issues: tuple[Issue, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def known_steps(self) -> dict[int, str]:
        """How many steps are known, and of how many the device work is, by rank."""
        if self.coverage.text or not any(
            rank_losses.source for rank_losses in self.losses.values()
        ):
            return {self.rank: self._own_steps()}
        return {
            rank: f"figures of {lost.steps} step{'s' * (lost.steps != 1)} from {lost.source}"
            if lost.per_step
            else f"sums of the whole capture, from {lost.source}"
            for rank, lost in self.losses.items()
        }

    def _own_steps(self) -> str:
        steps, recorded = self.coverage.steps, self.coverage.recorded
        if not steps:
            return "none"
        if not self.steps_marked:
            without = "" if recorded else ", without device data"
            return f"none marked; the whole recording counts as one{without}"
        if recorded == steps:
            return f"device data for all {steps}" if steps > 1 else "1, with device data"
        without = "1, without device data" if steps == 1 else ""
        return self.coverage.text or without or f"device data for none of {steps} iterations"


# -- encoded ------------------------------------------------------------------------------

_KINDS = "biuf"
"""Kinds of columns besides text."""


def packed(column: Any) -> Any:
    """A column as values that MessagePack has: its texts, or type, shape and bytes."""
    if isinstance(column, np.generic):
        return column.item()
    if not isinstance(column, np.ndarray):
        raise NotImplementedError(f"no column: {type(column).__name__}")
    if column.dtype == object:
        return column.tolist()
    little = column.astype(column.dtype.newbyteorder("<"), copy=False)
    return {"type": little.dtype.str, "shape": little.shape, "bytes": little.tobytes()}


@lru_cache
def _declared(kind: Any) -> Any:
    """The item type of a column that is declared with ``kind``."""
    return get_args(get_args(kind)[1])[0]


def decoded(content: bytes | memoryview, kind: type[T]) -> T:
    """Decode the output of :func:`packed` into an object of type ``kind``.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    with _ONE_AT_A_TIME:
        return msgspec.msgpack.decode(content, type=kind, dec_hook=_unpacked)


def _unpacked(kind: Any, value: Any) -> NDArray[Any]:
    """The column that :func:`packed` made; ``kind`` is the type its field is declared with."""
    if isinstance(value, list):
        texts = np.empty(len(value), object)
        texts[:] = [sys.intern(str(text)) for text in value]  # few differ, in all ranks
        return texts
    dtype = np.dtype(value["type"])
    declared = _declared(kind)
    if dtype.kind not in _KINDS or (declared is not Any and dtype != np.dtype(declared)):
        raise ValueError(f"a column of type {dtype}")
    column: NDArray[Any] = np.frombuffer(value["bytes"], dtype).reshape(value["shape"]).copy()
    return column


def encode(summary: RankSummary) -> bytes:
    """The summary as bytes. Text that is not valid Unicode is written with escapes."""
    try:
        return msgspec.msgpack.encode((VERSION, summary), enc_hook=packed)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(summary, enc_hook=packed, builtin_types=(bytes,))
        return msgspec.msgpack.encode((VERSION, _valid(plain)))


def _valid(value: Any) -> Any:
    """Plain values whose texts are valid UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_valid(key): _valid(item) for key, item in value.items()}
    return [_valid(item) for item in value] if isinstance(value, (list, tuple)) else value


def decode(
    content: bytes | memoryview,
    source: str = "summary of a rank",
    known_groups: dict[Any, Any] | None = None,
) -> RankSummary:
    """The summary in ``content``.

    Args:
        source: what it is called in messages.
        known_groups: of other ranks; equal ones become one object, see :meth:`Placement.sharing`.

    Raises:
        MalformedInputError: it is none, or of another version.
    """
    try:
        version, body = msgspec.msgpack.decode(content, type=tuple[int, msgspec.Raw])
        if version != VERSION:
            raise ValueError(f"of version {version}, not {VERSION}; use one traceconv for both")
        summary = decoded(body, RankSummary)
        _check(summary)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as e:
        raise MalformedInputError(source, "", f"not a summary of a rank: {e}") from e
    shared: dict[Any, Any] = {} if known_groups is None else known_groups
    groups = tuple(shared.setdefault(group, group) for group in summary.collectives.groups)
    known = {rule: facts.copy() for rule, facts in summary.rules.known.items()}  # not all content
    rules = RuleRecords(known, summary.rules.broken)
    return replace(
        summary,
        collectives=replace(summary.collectives, groups=groups),
        placement=summary.placement.sharing(shared),
        rules=rules,
    )


def _check(summary: RankSummary) -> None:
    """Raise ValueError if columns do not fit together or a number points at nothing."""
    excerpts = summary.excerpts
    for columns in (
        *summary.tables.values(),
        summary.links,
        excerpts.calls,
        excerpts.places,
        excerpts.curves,
    ):
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError("columns of one table differ in length")
    for records in (summary.collectives, summary.as_read.collectives):
        _check_records(records)
    summary.items.check()
    if summary.phases.shape[1:] != (3,):
        raise ValueError("phases of another shape")
    summary.replay.check(len(summary.collectives))
    summary.recorded.check()
    for issue in (*summary.issues, *summary.as_read.issues):
        Issues().add(issue.code, count=0)  # refuses undefined codes


def _check_records(records: CollectiveRecords) -> None:
    """Raise ValueError if columns of collectives do not fit together."""
    lengths = {
        len(value)
        for name, value in msgspec.structs.asdict(records).items()
        if isinstance(value, np.ndarray) and (len(value) or name not in SOMETIMES)
    }
    if len(lengths) > 1:
        raise ValueError("columns of collectives differ in length")
    if records.messages.any() and not len(records.direction) == len(records.peer) == len(records):
        raise ValueError("messages without directions")
    for column, names in ((records.group, records.groups), (records.kind, records.kinds)):
        if len(column) and not 0 <= column.min() <= column.max() < len(names):
            raise ValueError("collectives of no known group or kind")


# -- files --------------------------------------------------------------------------------


def save(content: bytes, path: Path) -> None:
    """Write an encoded summary to ``path``, which appears when the file is complete.

    Raises:
        OutputError: it cannot be written.
    """
    with replacing(path, ADVICE) as file:
        file.write(content)


def load(path: Path) -> RankSummary:
    """The summary in a file.

    Raises:
        MalformedInputError: there is none, or it is of another version.
    """
    try:
        content = path.read_bytes()
    except OSError as e:
        raise MalformedInputError(str(path), "", f"cannot be read: {e.strerror or e}") from e
    return decode(content, str(path))
