"""Why a job hangs, from dumps of PyTorch's flight recorder.

Operations of a process group are numbered on each rank, and run in that order. So the group hangs
in the first number at which ranks differ: one has not issued it, or has issued another operation.
The comparison is that of PyTorch's own analyzer (torch/distributed/flight_recorder/components of
pytorch/pytorch): the type, and sizes and types of elements, but for operations whose sizes may
differ between ranks. Messages are counted apart on each rank, so they are paired in order, by
sender and receiver.

A dump holds the last operations only. Those before the first one that all ranks still hold are not
compared.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from traceconv.alignment.collective_records import RECEIVE, SEND, kind_of
from traceconv.analysis.rank_facts import COMPLETED, SCHEDULED, STARTED, STATES, Recorded
from traceconv.core.columns import I64
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Layer, Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.rank_ranges import format_ranges

_MESSAGE = lazy_regex(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")
_GROUPED = ("coalesced", "ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced")
"""Entries that end operations issued together; these share its number and have no state."""

_UNEVEN_INPUT, _UNEVEN_OUTPUT = ("alltoall", "scatter"), ("alltoall", "gather")
_SHOWN = 8  # frames of a stack
_FACTOR = 1_000_003  # makes one code of the codes of operations issued together
_MOST = 2**40  # numbers beyond are damaged


class _Arguments(msgspec.Struct):
    collective_seq_id: int
    process_group: list[Any] = []
    members: Any = msgspec.field(default=None, name="Process Group Ranks")
    p2p_seq_id: int = 0
    record_id: int = 0
    is_p2p: bool = False
    state: str = ""
    retired: bool = False
    input_sizes: Any = None
    output_sizes: Any = None
    input_dtypes: Any = None
    output_dtypes: Any = None
    stack: list[str] = []


_decode = msgspec.json.Decoder(_Arguments, strict=False).decode


def recorded(trace: Trace) -> Recorded:
    """The operations of a rank, if it is a dump of the flight recorder."""
    if "flight_recorder" not in trace.capture.reader:
        return Recorded()
    events = trace.events
    operations: list[tuple[_Arguments, str]] = []
    for row in np.flatnonzero(trace.rows_of(Layer.COMM)).tolist():
        try:
            facts = _decode(trace.args.raw(int(events.args[row])))
        except (*NOT_JSON, IndexError):
            continue
        if not min(facts.collective_seq_id, facts.p2p_seq_id) >= 0 or _number(facts) > _MOST:
            continue
        operations.append((facts, trace.strings[int(events.name[row])]))
    operations.sort(key=lambda operation: operation[0].record_id)
    groups: dict[tuple[str, str, tuple[int, ...]], int] = {}
    issued: dict[tuple[str, str, str], int] = {}
    stacks: dict[tuple[str, ...], int] = {}
    rows = []
    ended = {
        (_name(f), f.is_p2p, _number(f)): _state(f)
        for f, name in operations
        if name.partition(":")[2] in _GROUPED
    }
    for facts, full in operations:
        name = full.partition(":")[2] or full
        purpose = str(facts.process_group[1]) if len(facts.process_group) > 1 else ""
        stated = [int(digits) for digits in re.findall(r"\d{1,9}", str(facts.members or ""))]
        members = trace.capture.placement.among_all(stated)
        match = _MESSAGE.fullmatch(name)
        sort = 0 if not match else SEND if match[1] == "send" else RECEIVE
        input_text, output_text = _shape(facts)
        words = (str(match[1]) if match else name, input_text, output_text)
        state = ended.get((_name(facts), facts.is_p2p, _number(facts)), _state(facts))
        rows.append((
            groups.setdefault((_name(facts), purpose, members), len(groups)),
            issued.setdefault(words, len(issued)),
            stacks.setdefault(tuple(facts.stack), len(stacks)) if facts.stack else -1,
            _number(facts), sort, int(match[3]) if match else -1, state,
        ))  # fmt: skip
    group, issued_index, stack, number, sort_, peer, state_ = (
        np.array(rows, np.int64).reshape(-1, 7).T
    )
    first_record = min((facts.record_id for facts, _ in operations), default=1)
    return Recorded(
        tuple(groups), tuple(issued), tuple(stacks), group.astype(np.int32),
        issued_index.astype(np.int32), stack.astype(np.int32), number, sort_.astype(np.int8),
        peer.astype(np.int32), state_.astype(np.int8), first_record <= 1,
    )  # fmt: skip


def _name(facts: _Arguments) -> str:
    return str(facts.process_group[0]) if facts.process_group else ""


def _number(facts: _Arguments) -> int:
    return facts.p2p_seq_id if facts.is_p2p else facts.collective_seq_id


def _state(facts: _Arguments) -> int:
    if facts.retired or facts.state == STATES[COMPLETED]:
        return COMPLETED
    return STARTED if facts.state == STATES[STARTED] else SCHEDULED


def _shape(facts: _Arguments) -> Iterator[str]:
    """Sizes and types of elements, of input and output."""
    for sizes, types in (
        (facts.input_sizes, facts.input_dtypes), (facts.output_sizes, facts.output_dtypes),
    ):  # fmt: skip
        listed = types if isinstance(types, list) else []
        elements = sorted({str(dtype) for dtype in listed}) if sizes and sizes != [[]] else []
        yield " ".join([str(sizes or []), *elements])


# -- the verdict ----------------------------------------------------------------------------------


class Side(msgspec.Struct, frozen=True):
    """What some ranks did at the number at which ranks differ.

    Attributes:
        ranks: which.
        what:  the operation, "" where they have issued none.
        input, output: sizes and types of elements.
        state: the furthest that one of them is in it, of :data:`STATES`; "" without an operation.
        stack: where one of them issued it, the innermost call first.
    """

    ranks: tuple[int, ...]
    what: str = ""
    input: str = ""
    output: str = ""
    state: str = ""
    stack: tuple[str, ...] = ()


DIFFERENT, MISSING, UNDECIDED, STUCK = "mismatch", "missing", "undecided", "stuck"
"""Ranks issued different operations; some have not issued it; those that are not known to have have
no dump, or no dump says which ranks are members; or all are in it, and it does not end."""


class Hang(msgspec.Struct, frozen=True):
    """Where a process group hangs.

    Attributes:
        kind:   :data:`DIFFERENT`, :data:`MISSING`, :data:`UNDECIDED` or :data:`STUCK`.
        group, purpose: name of the process group, and what it is for.
        members: its global ranks.
        number: of the operation in its group; of messages, that of the sender or receiver.
        sides:  what ranks did, the most usual first.
        without_dump: members that have no dump.
        also:   other groups that hang, as a consequence or on their own.
    """

    kind: str
    group: str
    purpose: str
    members: tuple[int, ...]
    number: int
    sides: tuple[Side, ...]
    without_dump: tuple[int, ...] = ()
    also: tuple[Hang, ...] = ()

    @property
    def _where(self) -> str:
        purpose = f" ({self.purpose})" if self.purpose and self.purpose != "undefined" else ""
        return f"operation {self.number} of group {self.group}{purpose}"

    def line(self) -> str:
        """The operation in which ranks wait, and which ranks differ."""
        usual, differing = self.sides[0], self.sides[1:]
        waits = "waits" if len(usual.ranks) == 1 else "wait"
        opening = f"hang: {_ranks(usual.ranks)} {waits} in {usual.what}, {self._where}"
        if self.kind == STUCK:
            return f"{opening}; all members are in it"
        if self.kind == UNDECIDED:
            if not self.without_dump:
                return f"{opening}; its members are not recorded"
            return f"{opening}; no dump of {_ranks(self.without_dump)}"
        differences = [
            f"{_ranks(side.ranks)} {'has' if len(side.ranks) == 1 else 'have'} not issued it"
            if not side.what
            else f"{_ranks(side.ranks)} issued {side.what}{self._differs(usual, side)}"
            for side in differing
        ]  # fmt: skip
        return "; ".join([opening, *differences])

    def _differs(self, usual: Side, other: Side) -> str:
        differences = [
            f"{name} {b} instead of {a}"
            for name, a, b in (
                ("input", usual.input, other.input), ("output", usual.output, other.output)
            )
            if a != b and other.what == usual.what
        ]  # fmt: skip
        return f" with {', '.join(differences)}" if differences else ""

    def lines(self) -> list[str]:
        """The line, the stacks recorded, and other groups that hang."""
        texts = [self.line()]
        for side in self.sides:
            if side.stack:
                frames = " < ".join(side.stack[:_SHOWN]) + " < ..." * (len(side.stack) > _SHOWN)
                texts.append(f"{_ranks(side.ranks[:1])} issued it in {frames}")
        if self.without_dump and self.kind != UNDECIDED:
            texts.append(f"note: no dump of {_ranks(self.without_dump)}")
        return texts + [problem.line().replace("hang:", "also:", 1) for problem in self.also]

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "kind": self.kind,
            "text": self.line(),
            "group": self.group,
            "purpose": self.purpose,
            "members": list(self.members),
            "operation": self.number,
            "sides": [
                {
                    **msgspec.structs.asdict(side),
                    "ranks": list(side.ranks),
                    "stack": list(side.stack),
                }
                for side in self.sides
            ],
            "ranks_without_dump": list(self.without_dump),
            "also": [problem.as_dict() for problem in self.also],
        }


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {format_ranges(ranks)}"


def hang(recorded_by_rank: Mapping[int, Recorded]) -> Hang | None:
    """Why the job hangs; None if no rank waits in an operation that its dump holds.

    Args:
        recorded_by_rank: the operations of each rank.

    Of several groups that hang, the first is one whose missing ranks wait in no other.
    """
    dumps = {rank: dump for rank, dump in recorded_by_rank.items() if len(dump)}
    groups: dict[tuple[str, tuple[int, ...]], dict[int, int]] = defaultdict(dict)
    purposes: dict[tuple[str, tuple[int, ...]], str] = {}
    for rank, dump in dumps.items():
        for group_index, (name, purpose, members) in enumerate(dump.groups):
            groups[name, members][rank] = group_index
            purposes[name, members] = purpose
    problems = []
    for (name, members), held in sorted(groups.items()):
        recorded_group = _Group(name, purposes[name, members], members, held, dumps)
        problems += [
            problem
            for problem in (recorded_group.collectives(), recorded_group.messages())
            if problem
        ]
    waiting = Counter(
        rank
        for problem in problems
        for side in problem.sides
        if side.what
        for rank in set(side.ranks)
    )

    def order(problem: Hang) -> tuple[int, int]:
        behind = [rank for side in problem.sides if not side.what for rank in side.ranks]
        elsewhere = any(waiting[rank] for rank in behind)
        kinds = (DIFFERENT, MISSING, UNDECIDED, STUCK)
        return kinds.index(problem.kind) + 2 * elsewhere, problem.number

    problems.sort(key=order)
    return msgspec.structs.replace(problems[0], also=tuple(problems[1:])) if problems else None


class _Group:
    """A process group, and the operations of its ranks."""

    def __init__(
        self, name: str, purpose: str, members: tuple[int, ...], held: Mapping[int, int],
        dumps: Mapping[int, Recorded],
    ) -> None:  # fmt: skip
        self.name, self.purpose, self.held = name, purpose, held
        self.stated, self.members = bool(members), members or tuple(sorted(held))
        self.dumps = {rank: dumps[rank] for rank in self.members if rank in dumps}
        self.without = tuple(rank for rank in self.members if rank not in dumps)

    def _rows(self, rank: int, message: bool) -> I64:
        dump = self.dumps[rank]
        in_group = dump.group == self.held.get(rank, -1)
        return np.flatnonzero(in_group & ((dump.message > 0) == message))

    def _hang(self, kind: str, number: int, sides: Sequence[Side]) -> Hang:
        return Hang(kind, self.name, self.purpose, self.members, number, tuple(sides), self.without)

    def collectives(self) -> Hang | None:
        """The first collective at which ranks differ, or that does not end."""
        rows = {rank: self._rows(rank, message=False) for rank in self.dumps}
        numbers = {rank: self.dumps[rank].number[rows[rank]] for rank in rows}
        states = {rank: self.dumps[rank].state[rows[rank]] for rank in rows}
        low, high, stuck = 0, 2**62, 2**62
        for rank, numbers_of_rank in numbers.items():
            if len(numbers_of_rank):
                low, high = (
                    max(low, int(numbers_of_rank.min())),
                    min(high, int(numbers_of_rank.max())),
                )
                waits = numbers_of_rank[states[rank] < COMPLETED]
                stuck = min(stuck, int(waits.min(initial=2**62)))
            elif self.dumps[rank].whole:  # it has issued none
                high = 0
        if stuck == 2**62:
            return None
        number = self._different(rows, numbers, low, min(stuck, high))
        if number is None:
            number = min(stuck, max(high + 1, low))
        sides = self._sides(rows, numbers, number)
        absent = [rank for side in sides if not side.what for rank in side.ranks]
        if sum(bool(side.what) for side in sides) > 1:
            return self._hang(DIFFERENT, number, sides)
        if not any(side.what and side.state != STATES[COMPLETED] for side in sides):
            return None
        if absent:
            return self._hang(MISSING, number, sides)
        decided = self.stated and not self.without
        return self._hang(STUCK if decided else UNDECIDED, number, sides)

    def _different(
        self, rows: Mapping[int, I64], numbers: Mapping[int, I64], low: int, high: int
    ) -> int | None:
        """The first number at which operations differ, if all dumps hold it."""
        kinds: dict[Any, int] = {}
        base: tuple[I64, I64] | None = None
        worst = high + 1
        for rank, rows_of_rank in rows.items():
            numbers_of_rank = numbers[rank]
            inside = (numbers_of_rank >= low) & (numbers_of_rank <= high)
            dump = self.dumps[rank]
            code = np.array(
                [kinds.setdefault(_compared(operation), len(kinds)) for operation in dump.issued],
                np.int64,
            )
            # operations issued together share a number: their codes are one
            number, begin = np.unique(numbers_of_rank[inside], return_index=True)
            codes = code[dump.what[rows_of_rank[inside]]]
            position = np.arange(len(codes)) - np.repeat(
                begin, np.diff(np.append(begin, len(codes)))
            )
            mixed = (
                np.add.reduceat((codes + 1) * _FACTOR ** (position % 3), begin)
                if len(begin)
                else codes
            )
            base = (number, mixed) if base is None else base
            _, own_index, its = np.intersect1d(number, base[0], return_indices=True)
            off = number[own_index][mixed[own_index] != base[1][its]]
            worst = min(worst, int(off.min(initial=worst)))
        return worst if worst <= high else None

    def _sides(
        self, rows: Mapping[int, I64], numbers: Mapping[int, I64], number: int
    ) -> list[Side]:
        """What each rank did at a number, those that did the same together."""
        ranks: dict[tuple[str, ...], list[int]] = defaultdict(list)
        shown: dict[tuple[str, ...], tuple[str, str, str]] = {}
        states: dict[tuple[str, ...], int] = {}
        stacks: dict[tuple[str, ...], tuple[str, ...]] = {}
        for rank, dump in self.dumps.items():
            rows_at_number = rows[rank][numbers[rank] == number]
            if len(rows_at_number):
                issued = [dump.issued[i] for i in dump.what[rows_at_number].tolist()]
                key = tuple(word for operation in issued for word in _compared(operation))
                names, inputs, outputs = map(list, zip(*issued, strict=True))
                shown.setdefault(key, (" + ".join(names), " ".join(inputs), " ".join(outputs)))
                states[key] = max(states.get(key, 0), int(dump.state[rows_at_number].max()))
                stack = int(dump.stack[rows_at_number].max())
                if stack >= 0:
                    stacks.setdefault(key, dump.stacks[stack])
            elif (len(numbers[rank]) and number <= numbers[rank].max()) or (
                not len(numbers[rank]) and not dump.whole
            ):
                continue  # its dump no longer holds it
            else:
                key = ()
            ranks[key].append(rank)
        order = sorted(ranks, key=lambda key: (not key, -len(ranks[key]), ranks[key]))
        return [
            Side(tuple(ranks[key]), *shown[key], STATES[states[key]], stacks.get(key, ()))
            if key else Side(tuple(ranks[key]))
            for key in order
        ]  # fmt: skip

    def messages(self) -> Hang | None:
        """The first message that does not end, and what its other side did."""
        sent: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for rank, dump in self.dumps.items():
            message_rows = self._rows(rank, message=True)
            if not (dump.state[message_rows] < COMPLETED).any():
                message_rows = message_rows if dump.whole else message_rows[:0]
            for row in message_rows.tolist():
                peer = int(dump.peer[row])
                if 0 <= peer < len(self.members):
                    sent[rank, self.members[peer], int(dump.message[row])].append(row)
        for (rank, peer, sort), rows in sorted(sent.items()):
            dump, peer_dump = self.dumps[rank], self.dumps.get(peer)
            peer_rows = sent.get((peer, rank, SEND + RECEIVE - sort), [])
            if peer_dump is None or not (
                dump.whole and peer_dump.whole
            ):  # the last ones are compared
                rows = [row for row in rows if dump.state[row] < COMPLETED]
                peer_rows = [
                    row for row in peer_rows if peer_dump and peer_dump.state[row] < COMPLETED
                ]
            for position, row in enumerate(rows):
                if dump.state[row] == COMPLETED:
                    continue
                side = _of_message(dump, row, rank)
                number = int(dump.number[row])
                if peer_dump is None:
                    return self._hang(UNDECIDED, number, [side])
                if position >= len(peer_rows):
                    return self._hang(MISSING, number, [side, Side((peer,))])
                answer = _of_message(peer_dump, peer_rows[position], peer)
                ends = (side.input, answer.output) if sort == SEND else (side.output, answer.input)
                if ends[0] != ends[1]:
                    return self._hang(DIFFERENT, number, [side, answer])
                if answer.state != STATES[COMPLETED]:
                    return self._hang(STUCK, number, [side, answer])
        return None


def _of_message(dump: Recorded, row: int, rank: int) -> Side:
    stack = int(dump.stack[row])
    words = dump.issued[int(dump.what[row])]
    state = STATES[int(dump.state[row])]
    return Side((rank,), *words, state, dump.stacks[stack] if stack >= 0 else ())


def _compared(issued: tuple[str, str, str]) -> tuple[str, str, str]:
    """The part of an operation that has to be equal on all ranks."""
    name, input_text, output_text = issued
    kind = kind_of(name)
    uneven = name.endswith("_v") or "_v_" in name
    return (
        name,
        "" if uneven or kind in _UNEVEN_INPUT else input_text,
        "" if uneven or kind in _UNEVEN_OUTPUT else output_text,
    )
