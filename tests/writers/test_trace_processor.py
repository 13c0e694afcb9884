"""Every golden output in Perfetto's own importer, where ``TRACECONV_TRACE_PROCESSOR`` names it."""

import stat
import sys

import pytest
import trace_processor
from decoded import decode
from golden_cases import CASES

from traceconv.validation import validate


def expected(path):
    """The same figures, as the decoder of the tests counts them."""
    found = decode(path)
    return {
        "slices": len(found.rows.ts),
        "busy": int(found.slices.dur.sum()),
        "samples": len(found.counters.ts),
        "arrows": len(found.flows.source),
        "errors": 0,
    }


READ = [case for case in CASES if not case.error]
IMPORTED = pytest.mark.skipif(
    not trace_processor.program(), reason=f"{trace_processor.VARIABLE} is not set"
)


@IMPORTED
@pytest.mark.parametrize("ending", ["pftrace", "json"])
@pytest.mark.parametrize("mode", ["summary", "detail"])
def test_the_importer_counts_what_we_wrote(mode, ending):
    """Counts and durations are equal, and none of its errors is counted."""
    for case in READ:
        out, _ = case.merged(ending, mode)
        assert trace_processor.loaded(out) == expected(out), out.name


@IMPORTED
def test_the_verdict_agrees_with_the_importer():
    """Through the package ``perfetto``, as ``validate --deep`` asks it."""
    pytest.importorskip("perfetto.trace_processor")
    for case in READ:
        verdict = validate(case.merged("pftrace", "detail")[0], deep=True)
        assert verdict.ok, (case.folder.name, verdict.findings)
        assert verdict.importer is not None


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A program that answers any query with fixed lines."""

    def answering(lines, code=0):
        script = tmp_path / "importer"
        script.write_text(f"#!{sys.executable}\nprint({lines!r})\nraise SystemExit({code})\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(trace_processor.VARIABLE, str(script))

    return answering


def test_its_answer_is_read(stand_in, tmp_path):
    """One row of figures behind a head of names."""
    stand_in('"slices","busy","samples","arrows","errors"\n12,3456,7,8,0\n')
    assert trace_processor.loaded(tmp_path) == {
        "slices": 12, "busy": 3456, "samples": 7, "arrows": 8, "errors": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("lines", "code"), [("1,2,3,4,5", 1), ("no such table", 0)])
def test_any_other_answer_fails(stand_in, tmp_path, lines, code):
    """A file it does not load, or a table it does not know, is no success."""
    stand_in(lines, code)
    with pytest.raises(AssertionError, match="importer"):
        trace_processor.loaded(tmp_path)
