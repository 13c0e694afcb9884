"""JSON tables of a generation A folder as columns: data pipeline, processor use, shapes, FLOPs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from traceconv.errors import Issues, MalformedInputError
from traceconv.readers._mindspore_text import MAX_BYTES, Rows, doubts_of
from traceconv.readers._sheet_cells import Column, table
from traceconv.readers._sheets import csv_columns
from traceconv.source import Source

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)

Columns = dict[str, Column]
Row = dict[str, str]


def pipeline_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``pipeline_profiling``: one row per operator, as ``minddata_pipeline_raw`` has them."""
    info = _object(source, name)
    parents = {
        _text(child): _text(op.get("op_id"))
        for op in _list(info.get("op_info"))
        for child in _plain_list(op.get("children"))
    }
    rows = []
    for op in _list(info.get("op_info")):
        number, queue = _text(op.get("op_id")), _queue(op)
        sizes = [float(s) for s in _plain_list(queue.get("size")) if _is_number(s)]
        length = _text(queue.get("length"))
        mean = sum(sizes) / len(sizes) if sizes else None
        rate = mean / float(length) if mean is not None and _positive(length) else None
        rows.append(
            {
                "op_id": number,
                "op_type": _text(op.get("op_type")),
                "num_workers": _text(op.get("num_workers")),
                "output_queue_size": _numbers_text(queue.get("size")),
                "output_queue_average_size": "" if mean is None else repr(mean),
                "output_queue_length": length,
                "output_queue_usage_rate": "" if rate is None else repr(rate),
                "sample_interval": _text(info.get("sampling_interval")),
                "parent_id": parents.get(number, ""),
                "children_id": _numbers_text(op.get("children")),
            }
        )
    return table(rows, doubts_of(source, name, issues))


def sample_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``pipeline_profiling``: one row per operator and sample of its output queue."""
    rows: Rows = []
    for op in _list(_object(source, name).get("op_info")):
        queue = _queue(op)
        sizes, rates = _plain_list(queue.get("size")), _plain_list(queue.get("throughput"))
        for i, size in enumerate(sizes):
            rows.append(
                {
                    "op_id": _text(op.get("op_id")),
                    "op_type": _text(op.get("op_type")),
                    "sample": str(i),
                    "size": _text(size),
                    "length": _text(queue.get("length")),
                    "throughput": _text(rates[i]) if i < len(rates) else "",
                }
            )
    return table(rows, doubts_of(source, name, issues))


def utilization_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``minddata_cpu_utilization``: one row per sample of the machine, the process, an operator."""
    info = _object(source, name)
    stamps = [_text(stamp) for stamp in _plain_list(info.get("time_stamp"))]
    whose = [("device", "", info.get("device_info")), ("process", "", info.get("process_info"))]
    whose += [
        ("operator", _text(op.get("op_id")), op.get("metrics")) for op in _list(info.get("op_info"))
    ]
    rows: Rows = []
    for scope, op, metrics in whose:
        series = {
            key: _plain_list(values)
            for key, values in (metrics if isinstance(metrics, dict) else {}).items()
        }
        for i in range(max(map(len, series.values()), default=0)):
            row = {"scope": scope, "op_id": op, "time_stamp": stamps[i] if i < len(stamps) else ""}
            rows.append(row | {k: _text(v[i]) for k, v in series.items() if i < len(v)})
    for row in rows:
        row["cpu_processor_num"] = _text(info.get("cpu_processor_num"))
        row["sampling_interval"] = _text(info.get("sampling_interval"))
    return table(rows, doubts_of(source, name, issues))


def summary_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``minddata_pipeline_summary`` (JSON): one row per operator, one column per key."""
    return _transposed(_object(source, name), source, name, issues)


def summary_table_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``minddata_pipeline_summary`` (CSV): the same; there a key is a line, its name in front."""
    columns = csv_columns(source, name, issues)
    lines = [list(columns), *zip(*(c.tolist() for c in columns.values()), strict=True)]
    keyed = {str(line[0]): [_text(cell) for cell in line[1:]] for line in lines if line}
    return _transposed(keyed, source, name, issues)


def _transposed(keyed: Mapping[str, Any], source: Source, name: str, issues: Issues) -> Columns:
    rows = len(_plain_list(keyed.get("op_ids")))
    found = [
        {key: _text(values[i]) for key, values in keyed.items() if _holds(values, i)}
        for i in range(rows)
    ]
    return table(found, doubts_of(source, name, issues))


def _holds(values: object, i: int) -> bool:
    return isinstance(values, list) and i < len(values)


def shape_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``dynamic_shape_info``: one row per operator (``side`` "operator") or kernel and step."""
    info = _object(source, name)
    rows = [
        {"side": side} | _row(one, {"dur": "dur(us)"})
        for side in ("operator", "kernel")
        for ones in _mapping(info.get(side)).values()
        for one in _list(ones)
    ]
    return table(rows, doubts_of(source, name, issues))


def shape_type_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``dynamic_shape_info``: what each type of operator or kernel took in each step."""
    info = _object(source, name)
    rows = [
        {"side": side, "step": step, "type": kind}
        | dict(zip(("total(us)", "count", "average(us)", "op_full_name"), stated, strict=False))
        for side in ("operator", "kernel")
        for step, kinds in _mapping(info.get(f"{side}_type")).items()
        for kind, cells in _mapping(kinds).items()
        for stated in [[_text(cell) for cell in _plain_list(cells)]]
    ]
    return table(rows, doubts_of(source, name, issues))


def scope_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``flops_scope``: one row per scope and the one within it, with its FLOPs."""
    links = _mapping(_object(source, name).get("data")).get("links")
    return table([_row(link) for link in _list(links)], doubts_of(source, name, issues))


def object_columns(source: Source, name: str, issues: Issues) -> Columns:
    """A JSON object as a table of one row; what is not a number or text stands as JSON."""
    return table([_row(_object(source, name))], doubts_of(source, name, issues))


def duration_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``timeline_summary``: one row; ``total_time`` is ms, and so ``total_time(ms)`` here."""
    row = _row(_object(source, name), {"total_time": "total_time(ms)"})
    return table([row], doubts_of(source, name, issues))


def _object(source: Source, name: str) -> Mapping[str, Any]:
    """A whole JSON object, its numbers as text.

    Raises:
        SourceError: the file cannot be read.
        MalformedInputError: it is none.
    """
    text = source.read(name, MAX_BYTES).decode("utf-8-sig", "replace")
    try:
        parsed = _DECODER.decode(text.strip())
    except (ValueError, RecursionError) as e:
        raise MalformedInputError(source.title(name), "", f"not JSON: {str(e)[:100]}") from e
    if not isinstance(parsed, dict):
        raise MalformedInputError(source.title(name), "", "not a JSON object")
    return parsed


def _row(one: Mapping[str, Any], renamed: Mapping[str, str] | None = None) -> Row:
    return {(renamed or {}).get(key, key): _text(value) for key, value in one.items()}


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _queue(op: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(op.get("metrics")).get("output_queue"))


def _numbers_text(values: object) -> str:
    return f"[{', '.join(map(_text, values))}]" if isinstance(values, list) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _plain_list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _list(value: object) -> Iterator[Mapping[str, Any]]:
    return (one for one in _plain_list(value) if isinstance(one, dict))


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _positive(text: str) -> bool:
    return _is_number(text) and float(text) > 0
