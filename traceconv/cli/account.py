"""The file of ``--report``: the whole account of a run, as a page, as Markdown or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from traceconv.analysis import html
from traceconv.analysis.markdown import lines as analysis_lines
from traceconv.cli import files


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write ``document`` (of ``Report.as_dict``) in the format of the file's ending.

    Raises:
        OutputError: the file cannot be written.
    """
    if path.suffix == ".json":
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"
    elif path.suffix == ".html":
        text = html.page(document)
    else:
        text = markdown(document)
    files.write(path, text)


def markdown(document: Mapping[str, Any]) -> str:
    """The account for people: files, ranks, clock, steps, issues, drops, ledger."""
    sections = [
        [f"# traceconv {document['traceconv']}: {document['mode']}"],
        analysis_lines(document.get("overview")),
        _table("Written", document["written"], leave_out=("issues",)),
        _table("Ranks", document["captures"], leave_out=("files",)),
        _clock(document["clock"]),
        _table("Issues", _issues(document["issues"])),
        _table("Dropped to keep the limit", document["dropped"]),
        _table("Rows by stage", _ledger(document["ledger"])),
    ]
    for rank, notes in document["notes"].items():
        steps = notes.get("steps")
        if isinstance(steps, Sequence) and steps and isinstance(steps[0], Mapping):
            sections.append(_table(f"Steps of rank {rank}", steps))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _table(
    title: str, rows: Iterable[Mapping[str, Any]], leave_out: Sequence[str] = ()
) -> list[str]:
    """A section with a table; its columns are the keys of all rows, in order of appearance."""
    rows = list(rows)
    if not rows:
        return []
    names = [n for n in dict.fromkeys(k for row in rows for k in row) if n not in leave_out]
    lines = [f"## {title}", "", _line(names), _line(["---"] * len(names))]
    return lines + [_line([_cell(row.get(name, "")) for name in names]) for row in rows]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{key} {one}" for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        value = ", ".join(str(v) for v in value)
    return str(value).replace("|", "\\|").replace("\n", " ")


def _clock(clock: Mapping[str, Any]) -> list[str]:
    plain = [f"{key}: {value}" for key, value in clock.items() if isinstance(value, (str, int))]
    lines = ["## Clock", "", *[f"- {line}" for line in plain]]
    for key, value in clock.items():
        if isinstance(value, Mapping) and value:
            lines += ["", *_nested(key, value)]
    return lines


def _nested(key: str, value: Mapping[str, Any]) -> list[str]:
    rows = [{key: k, **(v if isinstance(v, Mapping) else {"value": v})} for k, v in value.items()]
    return _table(key, rows)[2:]


def _issues(issues: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    order = {"loss": 0, "doubt": 1, "info": 2}
    ranked = sorted(issues, key=lambda issue: order[issue["severity"]])
    return [{**i, "rank": "" if i["rank"] < 0 else i["rank"]} for i in ranked]


def _ledger(ledger: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "stage": stage, **kinds}
        for rank, stages in ledger.items()
        for stage, kinds in stages.items()
    ]
