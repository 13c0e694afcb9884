"""Where each kind of file is shown: a row per kind, made from what readers and tables declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from traceconv.analysis.rules.catalog import RULES
from traceconv.analysis.tables.catalog import FILES, TABLES
from traceconv.passes import kernel_args, table_counters
from traceconv.readers.ascend.tables.names import USES
from traceconv.readers.shared.table_kinds import KINDS, NOT_NEEDED, SAME_RUN
from traceconv.readers.torch.kineto.graph_captures import USES as GRAPH_CAPTURES

if TYPE_CHECKING:
    from traceconv.core.plugins import Plugins
    from traceconv.readers import Reader

Row = tuple[str, str, str]

_OTHER_FORMS = (
    "CSV, JSON and statistics of rocprofv3 beside its database",
    "tables and JSON of XLA's viewer beside *.xplane.pb",
)

_LANES = "lanes, counters and arrows"
"""Where events are shown."""


def rows(readers: Plugins[Reader]) -> list[Row]:
    """(kind, files, where they are shown) of everything that readers recognise."""
    kinds = [(r.title, r.files, getattr(r, "shown", _LANES)) for r in readers.found.values()]
    kinds += [(f"table {kind}", KINDS[kind].files, "; ".join(_shown(kind))) for kind in KINDS]
    kinds += [("next to them", files, f"`inspect`: {use}") for files, _, use in USES]
    kinds += [("next to them", files, f"`inspect`: {use}") for files, use in GRAPH_CAPTURES]
    kinds += [("next to them", files, f"`inspect`: {SAME_RUN}") for files in _OTHER_FORMS]
    return [*kinds, ("next to them", "anything else in the folder", f"`inspect`: {NOT_NEEDED}")]


def _shown(kind: str) -> Iterator[str]:
    """Where the figures of a table are shown: in the trace, in `stats`, in rules."""
    if kind == kernel_args.SHEET:
        yield "arguments of slices"
    if kind in table_counters.SOURCES:
        yield "counters"
    tables = (*TABLES.values(), *FILES.values())
    yield f"`stats --by` {', '.join(f'`{t.name}`' for t in tables if kind in t.reads)}"
    if rules := [f"`{rule.id}`" for rule in RULES.values() if _mentions(rule.needs, kind)]:
        yield f"`diagnose`: {', '.join(rules)}"


def _mentions(needs: str, kind: str) -> bool:
    """Whether a rule says that it needs a table, by its name or that of one of its files."""
    stems = [re.split(r"_\*|\*", file)[0] for file in KINDS[kind].files.split(", ")]
    names = {stem for stem in (kind, *stems) if re.fullmatch(r"\w+[_.]\w+", stem)}
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", needs) for name in names)


def markdown_table(readers: Plugins[Reader]) -> str:
    """:func:`rows` as Markdown."""
    lines = ["| Kind | Files | Where it is shown |", "|---|---|---|"]
    for kind, files, shown in rows(readers):
        escaped = files.replace("|", "\\|")
        lines.append(f"| {kind} | `{escaped}` | {shown} |")
    return "\n".join(lines)
