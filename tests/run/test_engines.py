"""Engines do every job once, say which failed, and go on when a worker dies."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_jobs import job

import traceconv
from traceconv.core.errors import (
    EngineError,
    InputError,
    Issues,
    MalformedInputError,
    MissingExtraError,
    OptionError,
)
from traceconv.find.registry import writer_for
from traceconv.merging import merge_ranks
from traceconv.options.groups import MergeOptions, RunOptions
from traceconv.run import engines
from traceconv.run.engines import Run
from traceconv.run.executor import Executor
from traceconv.writers.output import silent

NEEDS = {"dask": "distributed", "ray": "ray"}


@pytest.fixture(scope="module", params=engines.ENGINES)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A real engine of two workers, in processes of their own."""
    name = request.param
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # those of other packages
        if name in NEEDS:
            pytest.importorskip(NEEDS[name])
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        patch.setenv("PYTHONPATH", path)  # clusters start interpreters of their own
        with engines.opened(name, 2, None) as opened:
            yield opened


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What other packages warn of is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def square(number: int, advance: engines.Advance) -> int:
    advance(number)
    return number * number


def fussy(number: int, advance: engines.Advance) -> int:
    if number == 1:
        raise MalformedInputError("file", "byte 7", "odd")
    return number


def deadly(number: int, advance: engines.Advance) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def deadly_once(mark: Path, advance: engines.Advance) -> int:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@pytest.mark.sample(3)
def test_every_job_is_done_once(run):
    """More jobs than workers; results are told by index."""
    done = sorted((d.index, d.value) for d in run(square, range(20)))
    assert done == [(i, i * i) for i in range(20)]


def test_no_jobs_are_done_at_once(run):
    """There may be nothing to do."""
    assert list(run(square, [])) == []


def test_an_error_of_ours_is_a_result(run):
    """It comes back as what it was, and the other jobs are done."""
    done = list(engines.in_order(run(fussy, range(3))))
    assert [d.value for d in done] == [0, None, 2]
    with pytest.raises(MalformedInputError, match="file: byte 7: odd"):
        done[1].result()


@pytest.mark.sample(3)
def test_a_job_whose_worker_dies_is_done_by_another(run, tmp_path):
    """A death says little about the job."""
    (done,) = run(deadly_once, [tmp_path / "mark"])
    assert isinstance(done.value, int)


@pytest.mark.sample(3)
def test_a_job_that_kills_its_workers_fails(run):
    """Twice is enough; all jobs that ran or waited beside it are done."""
    done = list(engines.in_order(run(deadly, range(12))))
    assert [d.value for d in done] == [0, None, *range(2, 12)]
    assert isinstance(done[1].error, EngineError)


def test_bytes_do_not_depend_on_the_engine(run, tmp_path):
    """A merge with these workers is the merge without any."""
    captures = job(tmp_path / "job", 3)
    one, other = tmp_path / "one.json.gz", tmp_path / "other.json.gz"
    traceconv.merge(str(captures), out=str(one), mode="detail", jobs=1)
    folder = tmp_path / "shared"
    folder.mkdir()
    executor, options = Executor(run, folder, parallel=True), MergeOptions(mode="detail")
    found = traceconv.open(str(captures)).found
    ranks = merge_ranks.read_ranks(found, options, executor, RunOptions(), Issues())
    target = merge_ranks.Target(str(other), writer_for(str(other)))
    merge_ranks.finish(ranks, options, target, executor, silent)
    assert one.read_bytes() == other.read_bytes()


def test_progress_of_local_workers_is_told():
    """As far as they have come."""
    told = []
    with engines.opened("local", 2, None) as local:
        list(local(square, [3, 4], lambda index, n: told.append((index, n))))
    assert sorted(told) == [(0, 3), (1, 4)]


def test_one_local_worker_is_this_process():
    """No other is started."""
    with engines.opened("local", 1, None) as local:
        assert [d.value for d in local(here, [0])] == [os.getpid()]


def here(number: int, advance: engines.Advance) -> int:
    return os.getpid()


def test_a_fault_of_ours_in_a_worker_is_told_with_its_place():
    """Not tried again, not swallowed."""
    with (
        engines.opened("local", 2, None) as local,
        pytest.raises(EngineError, match=r"(?s)internal error.*in faulty.*ZeroDivisionError"),
    ):
        list(local(faulty, [0]))


def faulty(number: int, advance: engines.Advance) -> float:
    return 1 / number


def test_workers_end_with_their_engine():
    """Busy or not."""
    with engines.opened("local", 2, None) as local:
        pids = {d.value for d in local(here, range(4))}
    assert pids
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("name", "address", "said"),
    [
        ("spark", None, "there are: local, dask, ray"),
        ("local", "tcp://x", "local engine has none"),
    ],
)
def test_engines_there_are_not(name, address, said):
    """Said with those there are."""
    with pytest.raises(OptionError, match=said), engines.opened(name, 2, address):
        pass


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_an_engine_that_is_not_installed_says_how_to(name, monkeypatch):
    """They are extras."""
    monkeypatch.setitem(sys.modules, NEEDS[name], None)
    with (
        pytest.raises(MissingExtraError, match=rf"pip install '\.\[{name}\]'"),
        engines.opened(name, 2, None),
    ):
        pass


def test_errors_of_ours_travel():
    """Each class comes back as itself."""
    for error in (MalformedInputError("a", "b", "c"), InputError("d"), EngineError("e")):
        (done,) = engines.in_process(raising, [error])
        assert (type(done.error), str(done.error)) == (type(error), str(error))


def raising(error: Exception, advance: engines.Advance) -> None:
    raise error
