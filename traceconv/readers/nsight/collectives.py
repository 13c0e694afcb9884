"""Calls of NCCL, and the kernels that carry them out.

Kernels that communicate get communicator and size from the call of NCCL that launched them. Such a
call is a range on the host of a few hundred ns; the kernel is launched within it, or, if calls are
grouped, somewhere between the outermost ``ncclGroupStart`` and its ``ncclGroupEnd``. The bytes of
all calls of a group are the size of its kernel if it launched one; of several kernels the sizes are
unknown. The name of the call tells a send from a receive, which one kernel carries out; calls of
both in one group are an exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.clock import INT64_MAX
from traceconv.core.model import I64, OpClass, Strings
from traceconv.core.ordering import mapped
from traceconv.readers.nsight.payloads import BYTES, COMMUNICATOR, RANKS, Ranges
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.gpu_kernels import kernel_class
from traceconv.readers.shared.layouts import TableRows

GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"

GROUP_SIZE, CALL = "Group size", "Collective name"
"""As PyTorch calls these arguments of a kernel."""

MARKS = COMMUNICATOR, BYTES, GROUP_SIZE, CALL
"""Arguments of kernels that communicate."""


@dataclass(frozen=True)
class Issued:
    """Calls of NCCL that are carried out together, in the order of (thread, start).

    Attributes:
        thread:  serialized id.
        start_ns, end_ns: as in the report.
        name:    string id of the calls if all have one name, else -1.
        bytes:   of all messages.
        communicator: their one communicator; ``mixed`` where there are several.
        mixed:   bool.
    """

    thread: I64
    start_ns: I64
    end_ns: I64
    name: I64
    bytes: I64
    communicator: NDArray[np.uint64]
    mixed: NDArray[np.bool_]

    def mark(
        self,
        rows: TableRows,
        calls: TableRows,
        ranks: Mapping[int, int],
        words: Sequence[str],
        strings: Strings,
    ) -> None:
        """Add the columns :data:`MARKS` and ``lane`` to kernels that communicate; the lane is their
        communicator where it is known, else the stream. A communicator is one track, whatever
        streams it runs on.

        Args:
            calls: into the runtime.
            ranks: of communicators.
            words: the user's own for kernels that communicate.
            strings: the texts of names.
        """
        texts = rows.names["name"]
        comm = mapped(
            rows["name"], lambda i: kernel_class(texts.get(i, ""), words) is OpClass.COMM, np.bool_
        )
        number = np.where(comm & (rows["correlation"] >= 0), rows["correlation"], -2)
        call_of = self._of_calls(calls, lookup(calls["correlation"], number))
        alone = np.bincount(call_of[call_of >= 0], minlength=len(self.bytes)) == 1
        has_communicator = (call_of >= 0) & ~self.mixed[call_of]
        ids, code = np.unique(self.communicator, return_inverse=True)
        communicator_of = np.where(has_communicator, code[call_of], -1)
        sizes = np.array([ranks.get(identifier, -1) for identifier in ids.tolist()], np.int64)
        rows.columns[COMMUNICATOR] = communicator_of
        rows.columns[BYTES] = np.where((call_of >= 0) & alone[call_of], self.bytes[call_of], -1)
        rows.columns[GROUP_SIZE] = picked(sizes, communicator_of)
        rows.columns[CALL] = picked(self.name, call_of)
        rows.names[CALL] = {i: strings[i] for i in np.unique(self.name).tolist() if i >= 0}
        rows.columns["lane"] = np.where(has_communicator, -2 - communicator_of, rows["stream"])
        names = {i: f"0x{identifier:x}" for i, identifier in enumerate(ids.tolist())}
        rows.names[COMMUNICATOR] = names
        rows.names["lane"] = {-2 - i: f"Communicator {name}" for i, name in names.items()}
        rows.identity["lane"] = {
            code: {"communicator": name} for code, name in rows.names["lane"].items()
        }

    def _of_calls(self, calls: TableRows, chosen: I64) -> I64:
        """What each of the chosen calls into the runtime was made for; -1 = none of these.

        Args:
            chosen: positions among the calls; -1 for none.
        """
        issued_for = np.full(len(chosen), -1)
        present = np.flatnonzero(chosen >= 0)
        threads, start = calls["thread"][chosen[present]], calls["start"][chosen[present]]
        for thread in np.unique(self.thread).tolist():
            low, high = np.searchsorted(self.thread, [thread, thread + 1]).tolist()
            of_thread = np.flatnonzero(threads == thread)
            nearest = low + np.searchsorted(self.start_ns[low:high], start[of_thread], "right") - 1
            inside = (nearest >= low) & (start[of_thread] <= self.end_ns[np.maximum(nearest, low)])
            issued_for[present[of_thread[inside]]] = nearest[inside]
        return issued_for


def issued(ranges: Ranges, strings: Strings) -> Issued | None:
    """The calls of NCCL whose sizes are known, or None."""
    size = np.full(len(ranges.name), -1, np.int64)
    communicator = np.zeros(len(ranges.name), np.uint64)
    for group in ranges.payloads:
        if BYTES in group.values and COMMUNICATOR in group.values:
            size[group.at] = np.minimum(group.values[BYTES], np.uint64(1 << 50)).astype(np.int64)
            communicator[group.at] = group.values[COMMUNICATOR].astype(np.uint64)
    rows = ranges.rows
    groups = _groups(ranges, strings)
    single = np.flatnonzero(size >= 0)
    if not len(single):
        return None
    thread = np.concatenate((groups[:, 0], rows["thread"][single]))
    start = np.concatenate((groups[:, 1], rows["start"][single]))
    end = np.concatenate((groups[:, 2], rows["end"][single]))
    call = np.concatenate((np.full(len(groups), -1), single))
    order = np.lexsort((call, start, thread))  # a group before its first call
    thread, start, end, call = thread[order], start[order], end[order], call[order]
    # runs of ranges that the first of each run holds
    firsts, holder, until = [], None, -1
    for i, (t, s, e) in enumerate(zip(thread.tolist(), start.tolist(), end.tolist(), strict=True)):
        if t != holder or s > until:
            holder, until = t, e
            firsts.append(i)
    first = np.array(firsts, np.intp)
    bytes_ = np.add.reduceat(np.where(call >= 0, size[call], 0), first)
    low = np.minimum.reduceat(np.where(call >= 0, communicator[call], _LAST), first)
    high = np.maximum.reduceat(np.where(call >= 0, communicator[call], np.uint64(0)), first)
    names = ranges.name[np.maximum(call, 0)].astype(np.int64)
    first_name = np.minimum.reduceat(np.where(call >= 0, names, INT64_MAX), first)
    name = np.where(
        first_name == np.maximum.reduceat(np.where(call >= 0, names, -1), first), first_name, -1
    )
    found = np.maximum.reduceat(call, first) >= 0
    columns = (thread[first], start[first], end[first], name, bytes_, low, low != high)
    return Issued(*(column[found] for column in columns))


_LAST = np.uint64(2**64 - 1)


def _groups(ranges: Ranges, strings: Strings) -> I64:
    """Thread, start and end of every outermost group that is complete, (n, 3)."""
    marks = {strings.intern(GROUP_START): 1, strings.intern(GROUP_END): -1}
    events = np.flatnonzero(np.isin(ranges.name, list(marks)))
    rows = ranges.rows
    events = events[np.lexsort((rows["start"][events], rows["thread"][events]))]
    groups, depth, begun, previous = [], 0, -1, None
    for thread, start, end, name in zip(
        *(rows[key][events].tolist() for key in ("thread", "start", "end")),
        ranges.name[events].tolist(),
        strict=True,
    ):
        if thread != previous:
            depth, previous = 0, thread
        step = marks[name]
        if step > 0 and depth == 0:
            begun = start
        if step < 0 and depth == 1:
            groups.append((thread, begun, end))
        depth = max(depth + step, 0)
    return np.array(groups, np.int64).reshape(-1, 3)


def sizes_of(ranges: Ranges) -> Mapping[int, int]:
    """Ranks of every communicator whose creation was recorded."""
    sizes: dict[int, int] = {}
    for group in ranges.payloads:
        if RANKS in group.values and COMMUNICATOR in group.values:
            columns: list[NDArray[Any]] = [group.values[COMMUNICATOR], group.values[RANKS]]
            sizes.update(zip(*(c.tolist() for c in columns), strict=True))
    return sizes
