"""Perfetto's own importer, where somebody has it: what it makes of a file, in five figures."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

VARIABLE = "TRACECONV_TRACE_PROCESSOR"
"""Names the program (``trace_processor_shell``); it is never fetched."""

QUERY = """
select (select count(*) from slice) as slices,
  (select ifnull(sum(dur), 0) from slice where dur > 0) as busy,
  (select count(*) from counter) as samples,
  (select count(*) from flow) as arrows,
  (select ifnull(sum(value), 0) from stats where severity in ('error', 'data_loss')) as errors;
"""


def program() -> str:
    """The program, or "" if none is named."""
    return os.environ.get(VARIABLE, "")


def loaded(path: Path) -> dict[str, int]:
    """The figures of ``path``, as the importer counts them.

    Raises:
        AssertionError: it does not load the file, or answers something else.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as query:
        query.write(QUERY)
        query.flush()
        command = [program(), "-q", query.name, str(path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    rows = re.findall(r"^(\d+),(\d+),(\d+),(\d+),(\d+)\s*$", run.stdout, re.MULTILINE)
    assert run.returncode == 0 and len(rows) == 1, f"{command}: {run.stdout}{run.stderr}"
    names = ("slices", "busy", "samples", "arrows", "errors")
    return dict(zip(names, map(int, rows[0]), strict=True))
