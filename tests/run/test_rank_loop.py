"""One loop over ranks under all verbs: the same results, failures and progress for any workers."""

import json
import shutil
from collections import Counter

import orjson
import pytest
from small_jobs import capture_of, job

import traceconv
from traceconv.cli import run
from traceconv.core.errors import MalformedInputError

RANKS = 3

VERBS = {
    "stats": lambda path, **more: traceconv.stats(path, by="all", **more),
    "stats of a window": lambda path, **more: traceconv.stats(path, time="0s:1ms", **more),
    "stats on one clock": lambda path, **more: traceconv.stats(path, align="collective", **more),
    "align": traceconv.align,
    "stragglers": traceconv.stragglers,
    "critical path": lambda path, **m: traceconv.critical_path(path, clock_error_ns=1000, **m),
    "diagnose": lambda path, **more: traceconv.diagnose(path, analyse=True, **more),
}


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    return job(tmp_path_factory.mktemp("job"), RANKS)


@pytest.fixture
def broken(captures, tmp_path):
    """The same, but rank 1 cannot be read."""
    folder = tmp_path / "broken"
    shutil.copytree(captures, folder)
    capture_of(folder, 1).write_bytes(b"garbage")
    return folder


def document(found):
    """All that a verb says, as text."""
    if isinstance(found, traceconv.Statistics):
        columns = [{h: c.tolist() for h, c in r.data.columns.items()} for r in found.results]
        return repr((found.ranks, columns, [issue.as_dict() for issue in found.issues]))
    more = getattr(found, "document", None)
    return json.dumps([found.as_dict(), [i.as_dict() for i in found.issues]]) + (
        orjson.dumps(more).decode() if more else ""
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("verb", VERBS)
def test_results_do_not_depend_on_the_number_of_workers(captures, verb):
    """Here and in two processes."""
    one, two = (document(VERBS[verb](captures, jobs=jobs)) for jobs in (1, 2))
    assert one == two


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("verb", "jobs"), [*((verb, 1) for verb in VERBS), ("stats", 2), ("stragglers", 2)]
)
def test_a_rank_that_cannot_be_read(broken, verb, jobs):
    """Fails the run, or is an issue if that is allowed; here and in other processes."""
    with pytest.raises(MalformedInputError, match=r"trace_view\.json.*allow_missing_ranks=True"):
        VERBS[verb](broken, jobs=jobs)
    found = VERBS[verb](broken, jobs=jobs, allow_missing_ranks=True)
    [issue] = [one for one in found.issues if one.code == "rank-failed"]
    assert (issue.rank, "trace_view.json" in issue.places[0]) == (1, True)


@pytest.mark.parametrize("verb", VERBS)
def test_when_no_rank_can_be_read_the_run_fails(broken, verb):
    """Leaving out is no way to an empty answer."""
    with pytest.raises(MalformedInputError):
        VERBS[verb](broken, ranks=1, allow_missing_ranks=True)


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_adds_up(captures, jobs):
    """Every byte of the input is reported once for each time it is read."""
    done, totals = Counter(), {}

    def progress(n, total, label):
        done[label] += n
        totals[label] = total

    traceconv.stats(captures, time="0s:1ms", jobs=jobs, progress=progress)
    stored = sum(capture_of(captures, rank).stat().st_size for rank in range(RANKS))
    whole = {"looking through 3 ranks": stored, "reading 3 ranks": stored, "making tables": 0}
    assert totals == done == whole


def test_a_window_counts_from_the_earliest_event_of_all(captures):
    """As one that is read rank by rank."""
    spans = [trace.span() for trace in traceconv.open(captures).traces("detail", scope=True)]
    first = min(start for start, _ in spans)
    window = (spans[2][0] - first, spans[2][0] - first + 1)
    found = traceconv.stats(captures, by="step", time=window)
    assert 2 in found.ranks


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words", [["stats"], ["align"], ["stragglers"], ["diagnose", "--rule", "long-tail"]]
)
def test_verbs_of_the_command_line_have_workers(broken, words, on_disk, capsys):
    """The same options as merge."""
    more = ["-j", "2", "--mem-limit", "2G", "--engine", "local", "--allow-missing-ranks"]
    assert run([words[0], str(broken), *words[1:], *more]) == 0
    assert "rank-failed" in capsys.readouterr().err
    assert run([*words, str(broken), "-j", "1"]) == 3
