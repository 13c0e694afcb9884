"""The notebook and the sample job in ``examples``; the plugin is tested with ``new-reader``."""

import json
import re

import pytest
from paths import ROOT

import traceconv

NOTEBOOK = json.loads((ROOT / "examples" / "ranks.ipynb").read_text())
CODE = ["".join(c["source"]) for c in NOTEBOOK["cells"] if c["cell_type"] == "code"]


def test_the_notebook_is_clean():
    """No output, no count of runs and no place of somebody's machine is kept with it."""
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert [c for c in cells if c["outputs"] or c["execution_count"] is not None] == []
    for code in CODE:
        compile(code, "ranks.ipynb", "exec")
    assert re.findall(r"traceconv\.(\w+)", "\n".join(CODE))
    assert set(re.findall(r"traceconv\.(\w+)\(", "\n".join(CODE))) <= set(traceconv.__all__)


def test_the_notebook_runs(root, tmp_path, monkeypatch):
    """From top to bottom, on the bundled sample, with figures that agree with the tables."""
    for package in ("pandas", "matplotlib"):
        pytest.importorskip(package, reason="make examples installs it")
    import matplotlib

    matplotlib.use("agg")
    sample = root / "golden" / "trace_view" / "demo" / "input"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prof").symlink_to(sample)
    names = {}
    for code in CODE:
        exec(compile(code, "ranks.ipynb", "exec"), names)
    kernels = names["kernels"]
    for trace in traceconv.open(sample).traces("detail"):
        total = int(trace.events.dur_ns[trace.rows_of("device")].sum())
        assert int(kernels[kernels["rank"] == trace.rank]["dur_ns"].sum()) == total > 0
    assert list(names["steps"].index) == [(r, s) for r in (0, 1) for s in (1, 2, 3)]
    assert (names["steps"]["Total Compute(ns)"] > 1_000_000).all()
    assert len(names["axes"].patches) == 18
    assert traceconv.validate(tmp_path / "long.pftrace").ok


def test_bundled_job_is_what_its_generator_writes(tmp_path):
    """``examples/make_job.py`` makes the same events as those that are bundled."""
    import gzip
    import runpy

    runpy.run_path(str(ROOT / "examples" / "make_job.py"))["main"](str(tmp_path))
    bundled = ROOT / "examples" / "job"
    made = {p.name: gzip.decompress(p.read_bytes()) for p in tmp_path.iterdir()}
    assert {p.name: gzip.decompress(p.read_bytes()) for p in bundled.iterdir()} == made
