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
    found: list[tuple[_Arguments, str]] = []
    for row in np.flatnonzero(trace.rows_of(Layer.COMM)).tolist():
        try:
            facts = _decode(trace.args.raw(int(events.args[row])))
        except (*NOT_JSON, IndexError):
            continue
        if not min(facts.collective_seq_id, facts.p2p_seq_id) >= 0 or _number(facts) > _MOST:
            continue
        found.append((facts, trace.strings[int(events.name[row])]))
    found.sort(key=lambda one: one[0].record_id)
    groups: dict[tuple[str, str, tuple[int, ...]], int] = {}
    issued: dict[tuple[str, str, str], int] = {}
    stacks: dict[tuple[str, ...], int] = {}
    rows = []
    ended = {
        (_name(f), f.is_p2p, _number(f)): _state(f)
        for f, name in found
        if name.partition(":")[2] in _GROUPED
    }
    for facts, full in found:
        name = full.partition(":")[2] or full
        purpose = str(facts.process_group[1]) if len(facts.process_group) > 1 else ""
        stated = [int(one) for one in re.findall(r"\d{1,9}", str(facts.members or ""))]
        members = trace.capture.placement.among_all(stated)
        match = _MESSAGE.fullmatch(name)
        sort = 0 if not match else SEND if match[1] == "send" else RECEIVE
        given, made = _shape(facts)
        words = (str(match[1]) if match else name, given, made)
        state = ended.get((_name(facts), facts.is_p2p, _number(facts)), _state(facts))
        rows.append((
            groups.setdefault((_name(facts), purpose, members), len(groups)),
            issued.setdefault(words, len(issued)),
            stacks.setdefault(tuple(facts.stack), len(stacks)) if facts.stack else -1,
            _number(facts), sort, int(match[3]) if match else -1, state,
        ))  # fmt: skip
    group, what, stack, number, sort_, peer, state_ = np.array(rows, np.int64).reshape(-1, 7).T
    first = min((facts.record_id for facts, _ in found), default=1)
    return Recorded(
        tuple(groups), tuple(issued), tuple(stacks), group.astype(np.int32),
        what.astype(np.int32), stack.astype(np.int32), number, sort_.astype(np.int8),
        peer.astype(np.int32), state_.astype(np.int8), first <= 1,
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
        elements = sorted({str(one) for one in listed}) if sizes and sizes != [[]] else []
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
        usual, others = self.sides[0], self.sides[1:]
        waits = "waits" if len(usual.ranks) == 1 else "wait"
        first = f"hang: {_ranks(usual.ranks)} {waits} in {usual.what}, {self._where}"
        if self.kind == STUCK:
            return f"{first}; all members are in it"
        if self.kind == UNDECIDED:
            if not self.without_dump:
                return f"{first}; its members are not recorded"
            return f"{first}; no dump of {_ranks(self.without_dump)}"
        said = [
            f"{_ranks(one.ranks)} {'has' if len(one.ranks) == 1 else 'have'} not issued it"
            if not one.what
            else f"{_ranks(one.ranks)} issued {one.what}{self._differs(usual, one)}"
            for one in others
        ]  # fmt: skip
        return "; ".join([first, *said])

    def _differs(self, usual: Side, other: Side) -> str:
        parts = [
            f"{name} {b} instead of {a}"
            for name, a, b in (
                ("input", usual.input, other.input), ("output", usual.output, other.output)
            )
            if a != b and other.what == usual.what
        ]  # fmt: skip
        return f" with {', '.join(parts)}" if parts else ""

    def lines(self) -> list[str]:
        """The line, the stacks recorded, and other groups that hang."""
        found = [self.line()]
        for one in self.sides:
            if one.stack:
                frames = " < ".join(one.stack[:_SHOWN]) + " < ..." * (len(one.stack) > _SHOWN)
                found.append(f"{_ranks(one.ranks[:1])} issued it in {frames}")
        if self.without_dump and self.kind != UNDECIDED:
            found.append(f"note: no dump of {_ranks(self.without_dump)}")
        return found + [one.line().replace("hang:", "also:", 1) for one in self.also]

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
                {**msgspec.structs.asdict(one), "ranks": list(one.ranks), "stack": list(one.stack)}
                for one in self.sides
            ],
            "ranks_without_dump": list(self.without_dump),
            "also": [one.as_dict() for one in self.also],
        }


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {format_ranges(ranks)}"


def hang(every: Mapping[int, Recorded]) -> Hang | None:
    """Why the job hangs; None if no rank waits in an operation that its dump holds.

    Args:
        every: the operations of each rank.

    Of several groups that hang, the first is one whose missing ranks wait in no other.
    """
    dumps = {rank: one for rank, one in every.items() if len(one)}
    groups: dict[tuple[str, tuple[int, ...]], dict[int, int]] = defaultdict(dict)
    purposes: dict[tuple[str, tuple[int, ...]], str] = {}
    for rank, dump in dumps.items():
        for at, (name, purpose, members) in enumerate(dump.groups):
            groups[name, members][rank] = at
            purposes[name, members] = purpose
    found = []
    for (name, members), held in sorted(groups.items()):
        one = _Group(name, purposes[name, members], members, held, dumps)
        found += [problem for problem in (one.collectives(), one.messages()) if problem]
    waiting = Counter(
        rank for one in found for side in one.sides if side.what for rank in set(side.ranks)
    )

    def order(one: Hang) -> tuple[int, int]:
        behind = [rank for side in one.sides if not side.what for rank in side.ranks]
        elsewhere = any(waiting[rank] for rank in behind)
        kinds = (DIFFERENT, MISSING, UNDECIDED, STUCK)
        return kinds.index(one.kind) + 2 * elsewhere, one.number

    found.sort(key=order)
    return msgspec.structs.replace(found[0], also=tuple(found[1:])) if found else None


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
        mine = dump.group == self.held.get(rank, -1)
        return np.flatnonzero(mine & ((dump.message > 0) == message))

    def _hang(self, kind: str, number: int, sides: Sequence[Side]) -> Hang:
        return Hang(kind, self.name, self.purpose, self.members, number, tuple(sides), self.without)

    def collectives(self) -> Hang | None:
        """The first collective at which ranks differ, or that does not end."""
        rows = {rank: self._rows(rank, message=False) for rank in self.dumps}
        numbers = {rank: self.dumps[rank].number[rows[rank]] for rank in rows}
        states = {rank: self.dumps[rank].state[rows[rank]] for rank in rows}
        first, last, stuck = 0, 2**62, 2**62
        for rank, known in numbers.items():
            if len(known):
                first, last = max(first, int(known.min())), min(last, int(known.max()))
                waits = known[states[rank] < COMPLETED]
                stuck = min(stuck, int(waits.min(initial=2**62)))
            elif self.dumps[rank].whole:  # it has issued none
                last = 0
        if stuck == 2**62:
            return None
        number = self._different(rows, numbers, first, min(stuck, last))
        if number is None:
            number = min(stuck, max(last + 1, first))
        sides = self._sides(rows, numbers, number)
        absent = [rank for one in sides if not one.what for rank in one.ranks]
        if sum(bool(one.what) for one in sides) > 1:
            return self._hang(DIFFERENT, number, sides)
        if not any(one.what and one.state != STATES[COMPLETED] for one in sides):
            return None
        if absent:
            return self._hang(MISSING, number, sides)
        decided = self.stated and not self.without
        return self._hang(STUCK if decided else UNDECIDED, number, sides)

    def _different(
        self, rows: Mapping[int, I64], numbers: Mapping[int, I64], first: int, last: int
    ) -> int | None:
        """The first number at which operations differ, if all dumps hold it."""
        kinds: dict[Any, int] = {}
        base: tuple[I64, I64] | None = None
        worst = last + 1
        for rank, own in rows.items():
            known = numbers[rank]
            inside = (known >= first) & (known <= last)
            dump = self.dumps[rank]
            code = np.array(
                [kinds.setdefault(_compared(one), len(kinds)) for one in dump.issued], np.int64
            )
            # operations issued together share a number: their codes are one
            number, begin = np.unique(known[inside], return_index=True)
            codes = code[dump.what[own[inside]]]
            place = np.arange(len(codes)) - np.repeat(begin, np.diff(np.append(begin, len(codes))))
            mixed = (
                np.add.reduceat((codes + 1) * _FACTOR ** (place % 3), begin)
                if len(begin)
                else codes
            )
            base = (number, mixed) if base is None else base
            _, mine, its = np.intersect1d(number, base[0], return_indices=True)
            off = number[mine][mixed[mine] != base[1][its]]
            worst = min(worst, int(off.min(initial=worst)))
        return worst if worst <= last else None

    def _sides(
        self, rows: Mapping[int, I64], numbers: Mapping[int, I64], number: int
    ) -> list[Side]:
        """What each rank did at a number, those that did the same together."""
        ranks: dict[tuple[str, ...], list[int]] = defaultdict(list)
        shown: dict[tuple[str, ...], tuple[str, str, str]] = {}
        states: dict[tuple[str, ...], int] = {}
        stacks: dict[tuple[str, ...], tuple[str, ...]] = {}
        for rank, dump in self.dumps.items():
            own = rows[rank][numbers[rank] == number]
            if len(own):
                issued = [dump.issued[i] for i in dump.what[own].tolist()]
                key = tuple(word for one in issued for word in _compared(one))
                shown.setdefault(key, issued[-1] if len(issued) < 2 else _together(issued))
                states[key] = max(states.get(key, 0), int(dump.state[own].max()))
                stack = int(dump.stack[own].max())
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
            own = self._rows(rank, message=True)
            if not (dump.state[own] < COMPLETED).any():
                own = own if dump.whole else own[:0]
            for row in own.tolist():
                peer = int(dump.peer[row])
                if 0 <= peer < len(self.members):
                    sent[rank, self.members[peer], int(dump.message[row])].append(row)
        for (rank, peer, sort), rows in sorted(sent.items()):
            dump, other = self.dumps[rank], self.dumps.get(peer)
            theirs = sent.get((peer, rank, SEND + RECEIVE - sort), [])
            if other is None or not (dump.whole and other.whole):  # the last ones are compared
                rows = [row for row in rows if dump.state[row] < COMPLETED]
                theirs = [row for row in theirs if other and other.state[row] < COMPLETED]
            for at, row in enumerate(rows):
                if dump.state[row] == COMPLETED:
                    continue
                side = _of_message(dump, row, rank)
                number = int(dump.number[row])
                if other is None:
                    return self._hang(UNDECIDED, number, [side])
                if at >= len(theirs):
                    return self._hang(MISSING, number, [side, Side((peer,))])
                answer = _of_message(other, theirs[at], peer)
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


def _together(issued: Sequence[tuple[str, str, str]]) -> tuple[str, str, str]:
    names = [name for name, _, _ in issued]
    return " + ".join(names), " ".join(i for _, i, _ in issued), " ".join(o for *_, o in issued)


def _compared(issued: tuple[str, str, str]) -> tuple[str, str, str]:
    """The part of an operation that has to be equal on all ranks."""
    name, given, made = issued
    kind = kind_of(name)
    uneven = name.endswith("_v") or "_v_" in name
    return (
        name,
        "" if uneven or kind in _UNEVEN_INPUT else given,
        "" if uneven or kind in _UNEVEN_OUTPUT else made,
    )
