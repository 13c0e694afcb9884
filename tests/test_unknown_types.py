"""Work of a type that only the next version of its producer writes is unclassified, and named."""

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from golden_cases import CASES, case_folder

import traceconv
from traceconv.core.model import Layer, OpClass

BY_CASE = {f"{case.reader}/{case.folder.name}": case for case in CASES}
TYPES = {
    "ascend_db/two_devices": "AI_CORE",
    "ascend_tables/kernels_alone": "AI_CORE",
    "chrome_json/unitrace_commands": "MemoryCopy(",
    "kineto/two_ranks": "kernel",
    "msprof/single_operators": "AI_CORE",
    "paddle/device_rows": "Kernel",
    "rpd/operation_types": "KernelExecution",
    "trace_view/demo": "AI_CORE",
    "xla_json/devices": "loop fusion",
    "xplane/sparse_core": "loop fusion",
}
"""By golden case a type in its input. Where the producer writes a table or a list per type, as
Nsight, rocprofv3 and Perfetto do, :mod:`test_nothing_vanishes` puts in one that is unknown."""


def _replace(path, known, later):
    """Replace a type, as a whole value, in a file of any form."""
    data = path.read_bytes()
    if not data.startswith(b"SQLite format 3\0"):
        known, later = known.encode(), later.encode()
        before, after = (b"", b"") if path.suffix == ".pb" or known.endswith(b"(") else (b'"', b'"')
        if path.suffix == ".csv":
            before = after = b","
        path.write_bytes(data.replace(before + known + after, before + later + after))
        return
    with closing(sqlite3.connect(path)) as database, database:
        for table in ("STRING_IDS", "rocpd_string"):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            if columns:
                change = f"UPDATE {table} SET {columns[1]} = ? WHERE {columns[1]} = ?"
                database.execute(change, (later, known))


def _unclassified(case):
    """How many device rows are of no class, and the places of the issue on them."""
    count, places = 0, []
    for trace in traceconv.open("input", **case.reading).traces("detail"):
        of_device = trace.rows_of(Layer.DEVICE)
        count += np.count_nonzero(trace.events.op[of_device] == OpClass.UNCLASSIFIED)
        found = (issue for issue in trace.issues if issue.code == "unclassified-tasks")
        places += [place for issue in found for place in issue.places]
    return count, " ".join(places)


@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_the_next_version_is_unclassified(name, tmp_path, monkeypatch):
    """It is neither the most common class nor gone."""
    case, known = BY_CASE[name], TYPES[name]
    shutil.copytree(case_folder(case.folder) / "input", tmp_path / "input")
    monkeypatch.chdir(tmp_path)
    before, _ = _unclassified(case)
    later = f"{'zz next year':{len(known)}.{len(known)}}"  # as long, for lengths precede texts
    for path in (tmp_path / "input").rglob("*"):
        if path.is_file():
            _replace(path, known, later)
    count, places = _unclassified(case)
    assert count > before
    assert "zz ne" in places
