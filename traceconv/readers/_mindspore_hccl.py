"""``hccl_raw_<rank>.csv``: what the collectives of each step cost, and over which links.

Columns: ``step_num`` (``-`` for the average over steps), ``communication_cost`` and ``wait_cost``
(ms, of the whole step), ``link_info`` and ``communication_operator_cost``, both JSON: ``{"<source
>-<destination>": {transport: [time ms, size KB, bandwidth KB/s]}}``, and ``{operator: [step, cost,
wait, links]}``. The cost is without the time spent in ``Notify_Wait``, which is the wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._mindspore_text import doubts_of
from traceconv.readers._sheet_cells import Column, Doubt, table
from traceconv.readers._sheets import csv_columns
from traceconv.source import Source

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)

Row = dict[str, str]


def step_columns(source: Source, name: str, issues: Issues) -> dict[str, Column]:
    """One row per step: ``step_num``, ``communication_cost(ms)``, ``wait_cost(ms)`` (as ns)."""
    rows = [
        {
            "step_num": step,
            "communication_cost(ms)": _at(cells, "communication_cost"),
            "wait_cost(ms)": _at(cells, "wait_cost"),
        }
        for step, cells in _rows(source, name, issues)
    ]
    return table(rows, doubts_of(source, name, issues))


def link_columns(source: Source, name: str, issues: Issues) -> dict[str, Column]:
    """One row per step, operator, link and transport; operators without a link have one, too.

    Columns: ``step_num``, ``operator`` ("" for all of the step), ``communication_cost(ms)`` and
    ``wait_cost(ms)`` of the operator, ``source``, ``destination``, ``transport``, ``time(ms)``,
    ``size(KB)``, ``bandwidth(KB/s)``.
    """
    found: list[Row] = []
    doubt = doubts_of(source, name, issues)
    for step, cells in _rows(source, name, issues):
        whole = {"step_num": step, "operator": ""}
        found += [whole | link for link in _links(_object(_at(cells, "link_info"), doubt))]
        for operator, cost, wait, links in _operators(cells, doubt):
            place = {
                "step_num": step,
                "operator": operator,
                "communication_cost(ms)": cost,
                "wait_cost(ms)": wait,
            }
            found += [place | link for link in _links(links)] or [place]
    return table(found, doubt)


def costs_beside(
    capture: Capture, name: str, issues: Issues
) -> dict[tuple[int, str], dict[str, Any]]:
    """By step and operator what ``hccl_raw`` in the folder of ``name`` says: arguments, in ms."""
    folder = name.rpartition("/")[0]
    beside = [
        other
        for other in capture.known
        if other.rpartition("/")[0] == folder and "hccl_raw_" in other
    ]
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for other in beside:
        doubt = doubts_of(capture.source, other, issues)
        for step, cells in _rows(capture.source, other, issues):
            if step.isdecimal():
                for operator, cost, wait, _ in _operators(cells, doubt):
                    stated = {"communication_cost(ms)": cost, "wait_cost(ms)": wait}
                    found[int(step), operator] = {k: _number(v) for k, v in stated.items()}
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _rows(source: Source, name: str, issues: Issues) -> Iterator[tuple[str, Mapping[str, Any]]]:
    columns = csv_columns(source, name, issues)
    if "step_num" not in columns:
        return
    for i, step in enumerate(columns["step_num"].tolist()):
        yield str(step), {heading: column[i] for heading, column in columns.items()}


def _at(cells: Mapping[str, Any], heading: str) -> str:
    return str(cells.get(heading, ""))


def _object(text: str, doubt: Doubt) -> Mapping[str, Any]:
    try:
        parsed = _DECODER.decode(text) if text else {}
    except (ValueError, RecursionError) as e:
        doubt("malformed-record", str(e)[:120], 1)
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _operators(
    cells: Mapping[str, Any], doubt: Doubt
) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Operator, cost, wait and links of a step."""
    for operator, stated in _object(_at(cells, "communication_operator_cost"), doubt).items():
        if isinstance(stated, list) and len(stated) >= 3:
            links = stated[3] if len(stated) > 3 and isinstance(stated[3], dict) else {}
            yield operator, str(stated[1]), str(stated[2]), links


def _links(links: Mapping[str, Any]) -> Iterator[Row]:
    for link, transports in links.items():
        source, _, destination = link.partition("-")
        for transport, stated in transports.items() if isinstance(transports, dict) else ():
            if isinstance(stated, list) and len(stated) == 3:
                yield {
                    "source": source,
                    "destination": destination,
                    "transport": transport,
                    "time(ms)": str(stated[0]),
                    "size(KB)": str(stated[1]),
                    "bandwidth(KB/s)": str(stated[2]),
                }
