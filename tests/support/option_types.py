"""The keywords of every verb as TypedDicts, made from their declarations.

``python -m tests.support.option_types`` writes them to ``traceconv/options/arguments.pyi``, which
type checkers and editors read.
"""

from __future__ import annotations

import re
from pathlib import Path

from traceconv.options import values, verbs
from traceconv.options.declaration import Group, arguments
from traceconv.options.groups import Input

FILE = Path(__file__).parents[2] / "traceconv" / "options" / "arguments.pyi"

KINDS: dict[str, tuple[type[Group], tuple[str, ...]]] = {
    "InputArguments": (Input, ()),
    "InspectArguments": (verbs.InspectOptions, ()),
    "TraceArguments": (verbs.TraceOptions, ("mode",)),
    "MergeArguments": (verbs.MergeRequest, ()),
    "ConvertArguments": (verbs.ConvertRequest, ("out",)),
    "QueryArguments": (verbs.QueryOptions, ()),
    "JoinArguments": (verbs.JoinOptions, ()),
    "PackArguments": (verbs.PackOptions, ()),
    "WriteArguments": (verbs.WriteOptions, ()),
    "AlignArguments": (verbs.AlignOptions, ()),
    "StatsArguments": (verbs.StatsOptions, ()),
    "StragglerArguments": (verbs.StragglerOptions, ()),
    "WhatIfArguments": (verbs.WhatIfOptions, ()),
    "CriticalPathArguments": (verbs.CriticalPathOptions, ()),
    "DiagnoseArguments": (verbs.DiagnoseOptions, ()),
    "WatchArguments": (verbs.WatchOptions, ()),
    "ExploreArguments": (verbs.ExploreOptions, ()),
    "DiffArguments": (verbs.DiffOptions, ()),
}
"""By name: the options, and those that are parameters of their own."""


def text() -> str:
    """The file."""
    classes, used = [], set()
    for name, (kind, own) in KINDS.items():
        lines = [f"class {name}(TypedDict, total=False):"]
        for one in arguments(kind):
            if one.name not in own:
                lines.append(f"    {one.name}: {one.type}")
                used |= set(re.findall(r"\w+", one.type))
        classes.append("\n".join(lines))
    of_values = sorted(used & set(vars(values)) - {"Iterable", "Mapping"}, key=str.lower)
    imports = [
        "from collections.abc import Iterable, Mapping",
        "from typing import TypedDict",
        "",
        "from traceconv.options.groups import MergeOptions, Selection",
        "from traceconv.options.values import (",
        *(f"    {name}," for name in of_values),
        ")",
    ]
    head = "# Made by `python -m tests.support.option_types`; do not edit."
    return "\n\n".join([head, "\n".join(imports), *classes]) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
