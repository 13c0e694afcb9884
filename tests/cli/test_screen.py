"""The default output of every command fits a screen: 24 lines of 100 columns."""

import json
import shutil

import pytest
from paths import NEEDS_DATA, ROOT
from real_captures import captures, name_of

import traceconv
from tests.support.commands import COMMANDS
from traceconv.cli import run

DATA = ROOT.parent / "shared" / "data"
SAMPLES = [
    "jobs/slow_worker",
    "gpu/kineto/hta_sampled_rank-0.json.gz",
    "field/gpu/vllm_with_async_llm",
]
BRIEF = ("inspect", "stats", "diagnose", "stragglers", "what-if", "merge")
VERBS = {
    "inspect": ["inspect"],
    "stats": ["stats"],
    "every table": ["stats", "--by", "all"],
    "diagnose": ["diagnose"],
    "stragglers": ["stragglers"],
    "what-if": ["what-if"],
    "align": ["align"],
    "critical path": ["critical-path"],
    "merge": ["merge", "-o", "out.pftrace", "-f"],
}


def event(name, ts, dur, tid, **args):
    """A complete slice."""
    return {"ph": "X", "name": name, "pid": tid, "tid": tid, "ts": ts, "dur": dur, "args": args}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """3000 steps of 8 ranks."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(8):
        events = []
        for step in range(3000):
            at = 1000 + step * 100
            length = 90 + (step % 500 == 7) * 9
            one = event(f"ProfilerStep#{step}", at, length, 1)
            events.append({**one, "cat": "user_annotation"})
            events.append(
                {**event("gemm", at + 5, 50 + rank, 7, stream=7, device=rank), "cat": "kernel"}
            )
        record = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 8}}
        record |= {"baseTimeNanoseconds": 0, "traceEvents": events}
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def lines(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder, in a terminal of 100 columns; the lines it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def of(words, path):
        run([words[0], str(path), *words[1:]])
        out, err = capsys.readouterr()
        return [
            part for line in (out + err).splitlines() for part in (line[:100], line[100:]) if part
        ]

    return of


@pytest.mark.sample(3)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("sample", ["demo", *SAMPLES])
def test_the_answer_fits_a_screen(sample, verb, lines):
    """Of real captures of all kinds."""
    path = ROOT / "golden/trace_view/demo/input" if sample == "demo" else DATA / sample
    if not path.exists():
        pytest.skip("real captures are not here")
    assert len(lines(VERBS[verb], path)) <= 24


def fits(line):
    """Whether it is short enough, or a path, which is not broken."""
    return len(line) <= 100 or len(line.split()) == 1


@pytest.mark.sample(2)
@NEEDS_DATA
@pytest.mark.parametrize("path", captures(), ids=name_of)
def test_every_capture_fits_a_screen(path, tmp_path, monkeypatch, capsys):
    """Each command, whatever it says; longer lines are paths, which are not broken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for verb in BRIEF:
        words = VERBS[verb]
        code = run([words[0], str(path), *words[1:]])
        out, err = capsys.readouterr()
        if code == 0:
            assert [line for line in (out + err).splitlines() if not fits(line)] == []
        # a terminal wraps errors
        assert sum(-(-len(line) // 100) for line in (out + err).splitlines()) <= 24
        assert code in (0, 2, 3)


@pytest.mark.parametrize(
    "sample", ["golden/trace_view/demo/input", "../shared/data/jobs/slow_worker"]
)
def test_a_comparison_fits_a_screen(sample, lines):
    """With as many items as there is room for."""
    if not (ROOT / sample).exists():
        pytest.skip("real captures are not here")
    assert len(lines(["diff", "--ranks", "0:1", "-q"], ROOT / sample)) <= 24
    assert len(lines(["diff", str(ROOT / sample)], ROOT / sample)) <= 24


@pytest.mark.sample(2)
@pytest.mark.parametrize("verb", ["inspect", "stats", "diagnose", "merge"])
def test_many_steps_fit_a_screen(job, verb, lines):
    """Steps are summarised; the worst one is named."""
    found = lines(VERBS[verb], job)
    assert len(found) <= 24
    if verb == "stats":
        rows = [line.split() for line in found if line.split()[0].isdigit()]
        assert [row[0] for row in rows] == list("01234567")
        assert {tuple(row[1:5]) for row in rows} == {("3000", "90.0", "90.0", "90.0")}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_fits_a_screen(name, monkeypatch, capsys):
    """-h names every option, --help explains them."""
    monkeypatch.setenv("COLUMNS", "100")
    assert run([name, "-h"]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 25
    for param in COMMANDS[name].params:
        if flags := [flag for flag in param.opts if flag.startswith("--")]:
            assert flags[0] in short
    assert run(["help", name]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= len(short.splitlines()) - 8


def test_every_column_of_a_document_has_a_name_of_its_own(capsys):
    """With its unit: idle time and idle share are two."""
    assert run(["stats", str(ROOT / "golden/trace_view/demo/input"), "--by", "all", "--json"]) == 0
    for table in json.loads(capsys.readouterr().out)["tables"]:
        keys = [column["key"] for column in table["columns"]]
        assert len(keys) == len(set(keys))
    overlap = traceconv.stats(ROOT / "golden/trace_view/demo/input", by="overlap")
    names = list(overlap["overlap"].columns)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diagnose", "--rule", "idle"], "did you mean 'device-idle' or 'idle-spread'?"),
        (["merge", "-o", "x.html"], "use --report x.html"),
        (["merge", "--time", "1,5s:"], "has a decimal comma; write '1.5s'"),
        (["merge", "--ranks", "2"], "ranks found: 0-1. Ranks count from 0"),
        (["merge", "--rank", "2"], "did you mean '--ranks' or '--rank-from'?"),
        (["convert", "x.json"], "argument (x.json); the output is given by -o FILE"),
        (["stats", "--top", "x"], "neither a number of rows nor all"),
    ],
)
def test_a_slip_is_answered_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    """In one form: "error: what is wrong, what would be right"; nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run([words[0], str(ROOT / "golden/trace_view/demo/input"), *words[1:]]) in (2, 3)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ") and said in err
    assert list(tmp_path.iterdir()) == []


def test_all_problems_of_a_folder_are_told_at_once(tmp_path, capsys):
    """Not one per run."""
    shutil.copytree(ROOT / "golden/trace_view/demo/input", tmp_path / "run")
    for name, known in (("a", {"rank": 0}), ("b", {"rank": 1}), ("c", {})):
        record = {"schemaVersion": 1, "traceEvents": [event("x", 10, 5, 1)]}
        record["distributedInfo"] = known
        (tmp_path / f"{name}.pt.trace.json").write_text(json.dumps(record))
    assert run(["merge", str(tmp_path)]) == 3
    err = capsys.readouterr().err
    for problem in ("rank 0 is claimed twice", "rank 1 is claimed twice", "1 of 5 captures"):
        assert problem in err


@pytest.mark.parametrize("words", [["-V"], ["help"], ["help", "merge"], ["-h"]])
def test_help_and_version_have_the_usual_names(words, capsys):
    """As in other programs."""
    assert run(words) == 0
    assert capsys.readouterr().out
