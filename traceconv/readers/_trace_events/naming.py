"""Metadata records: what names processes and threads. The last record of a kind counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from traceconv.readers._trace_events.contract import Lane, Names
from traceconv.readers._trace_events.tables import Shapes, whole_number

_PHASES = {
    **dict.fromkeys("XBE", "X"),
    **dict.fromkeys("bneSTpF", "b"),
    **dict.fromkeys("stf", "s"),
}
"""Phases that share a lane, by the one a lane is asked about with."""

_OWN_KEYS = ("name", "sort_index", "labels")


class Naming:
    """Collects metadata while a file is read; then makes :class:`Lane` of shapes.

    Attributes:
        unused: metadata records that say nothing of use.
    """

    def __init__(self) -> None:
        self.unused = 0
        self._processes: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._threads: dict[tuple[str, str], str] = {}
        self._sort: dict[tuple[str, str], int] = {}
        self._process_extra: dict[str, dict[str, str | int]] = {}
        self._thread_extra: dict[tuple[str, str], dict[str, str | int]] = {}
        self._names = Names(self._processes, self._labels, self._threads)

    def add(self, name: str | None, pid: str, tid: str, raw: bytes) -> None:
        """Take one metadata record.

        Args:
            raw: its ``args`` as JSON.
        """
        try:
            args = msgspec.json.decode(raw) if raw else None
        except (msgspec.MsgspecError, ValueError, RecursionError):
            args = None
        if not isinstance(args, dict) or not self._known(name, pid, tid, args):
            self.unused += 1

    def _known(self, name: str | None, pid: str, tid: str, args: dict[str, Any]) -> bool:
        if name == "process_name" and "name" in args:
            self._processes[pid] = _text(args["name"])
            self._process_extra[pid] = _extra(args)
        elif name == "thread_name" and "name" in args:
            self._threads[pid, tid] = _text(args["name"])
            self._thread_extra[pid, tid] = _extra(args)
        elif name == "process_labels" and "labels" in args:
            self._labels[pid] = _text(args["labels"])
        elif name == "thread_sort_index":
            self._sort[pid, tid] = whole_number(args.get("sort_index"))
        else:
            return name == "process_sort_index"
        return True

    def meet(self, shapes: Shapes) -> None:
        """Take in which lanes there are."""
        columns = shapes.phase, shapes.category, shapes.pid, shapes.tid
        self._names = replace(self._names, lanes=tuple(zip(*columns, strict=True)))

    def lane(self, shapes: Shapes, code: int) -> Lane:
        """The lane of events of one shape."""
        pid, tid = shapes.pid[code], shapes.tid[code]
        phase = shapes.phase[code]
        return Lane(
            pid,
            tid,
            self._processes.get(pid, ""),
            self._threads.get((pid, tid), ""),
            self._labels.get(pid, ""),
            shapes.category[code],
            _PHASES.get(phase, phase),
            {**self._process_extra.get(pid, {}), **self._thread_extra.get((pid, tid), {})},
            self._names,
            max(self._sort.get((pid, tid), 0), 0),
        )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _extra(args: dict[str, Any]) -> dict[str, str | int]:
    return {
        str(key): value
        for key, value in args.items()
        if key not in _OWN_KEYS and isinstance(value, str | int) and not isinstance(value, bool)
    }
