"""Real captures, damaged on purpose: a bounded number of cuts through each."""

import shutil

import pytest
from crashes import Outcome, cuts
from effort import effort
from paths import ASCEND

TORCH = ASCEND / "msinsight" / "test" / "data" / "pytorch"
OUTPUT = "ASCEND_PROFILER_OUTPUT"


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """Makes a copy of a sample folder that may be damaged; its path and what it gives."""

    def copy(folder):
        to = tmp_path_factory.mktemp("copy") / folder.name
        shutil.copytree(folder, to, copy_function=shutil.copyfile)
        for path in [to, *to.rglob("*")]:
            path.chmod(0o755)
        return to, Outcome(to)

    return copy


@pytest.fixture(scope="module")
def text(copied):
    return copied(TORCH / "text" / "level1" / "rank0_ascend_pt")


@pytest.fixture(scope="module")
def database(copied):
    return copied(TORCH / "db" / "level1" / "rank0_ascend_pt")


@pytest.fixture(scope="module")
def training(copied):
    return copied(ASCEND / "mindinsight" / "profiler")


def damaged(folder, path, contents):
    """What a folder gives with other contents of one file, one after the other."""
    data = path.read_bytes()
    for content in contents:
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        try:
            yield Outcome(folder)
        finally:
            path.write_bytes(data)


def test_a_timeline_may_be_cut(text):
    """The more of it is there, the more is read; that it was cut is told. Threads of Python are
    named behind their slices.
    """
    folder, whole = text
    path = folder / OUTPUT / "trace_view.json"
    data = path.read_bytes()
    lengths = cuts(data, effort(4, 6))[1:]
    counts = []
    for outcome in damaged(folder, path, [data[:n] for n in lengths]):
        assert not outcome.made_up(whole, layered=False)
        assert outcome.names(path.name, whole)
        counts.append(outcome.rows.total())
    assert counts == sorted(counts)
    assert whole.rows.total() - counts[-1] <= 1  # the bracket at the end is no event


@pytest.mark.parametrize("name", ["kernel_details.csv", "memory_record.csv", "communication.json"])
def test_tables_beside_it_may_be_cut(text, name):
    """No event depends on them; that a table was cut is told."""
    folder, whole = text
    path = folder / OUTPUT / name
    data = path.read_bytes()
    for outcome in damaged(folder, path, [data[:n] for n in cuts(data, 3)]):
        assert outcome.rows == whole.rows
        assert outcome.names(name, whole)


def test_any_file_beside_the_timeline_may_be_missing(text):
    """Identity and tables: the events are the same."""
    folder, whole = text
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.name != "trace_view.json":
            (outcome,) = damaged(folder, path, [None])
            assert (outcome.rows, outcome.error) == (whole.rows, ""), path.name


def test_without_its_timeline_a_capture_has_its_tables(text):
    """191 kernels and collectives of kernel_details.csv."""
    folder, _ = text
    (outcome,) = damaged(folder, folder / OUTPUT / "trace_view.json", [None])
    assert not outcome.error
    assert sum(n for (layer, _, _), n in outcome.rows.items() if layer in ("device", "comm")) == 191


def test_a_database_may_be_cut(database):
    """In tenths, within pages: nothing is made up, tables that lack rows are named."""
    folder, whole = database
    path = folder / OUTPUT / "ascend_pytorch_profiler_0.db"
    data = path.read_bytes()
    counts = []
    for outcome in damaged(folder, path, [data[:n] for n in cuts(data, 10)]):
        if outcome.error:  # the schema is not there
            assert "-wal file" in outcome.error and not counts
            continue
        assert not outcome.made_up(whole)
        assert outcome.names(path.name, whole)
        counts.append(outcome.rows.total())
    assert counts == sorted(counts)
    assert len(counts) == 8  # of eleven
    assert outcome.lost(whole) == 87  # of 710 calls, on eight pages


def test_any_export_of_a_folder_may_be_missing(training):
    """Two PROF folders: what each file adds is gone with it, all others stay."""
    folder, whole = training
    exports = [p for p in folder.rglob("*_[12].json") if p.parent.name == "timeline"]
    for path in sorted(exports)[::3]:
        (outcome,) = damaged(folder, path, [None])
        assert not outcome.error
        told = any(i.code == "part-missing" for i in outcome.issues)
        assert told == path.name.startswith("msprof_")
        assert whole.rows.total() > outcome.lost(whole)


@pytest.mark.thorough
def test_any_export_of_a_folder_may_be_cut(training):
    """In the middle of a record."""
    folder, whole = training
    exports = [p for p in folder.rglob("msprof_*_[14].json") if p.parent.name == "timeline"]
    for path in sorted(exports):
        data = path.read_bytes()
        for outcome in damaged(folder, path, [data[:n] for n in cuts(data, 3)[1:]]):
            assert not outcome.made_up(whole)
            assert outcome.names(path.name, whole)


def test_any_other_file_of_a_folder_may_be_missing(training):
    """Clocks, identity, tables, ``.done``: events may move to another clock, none is lost."""
    folder, whole = training
    others = [p for p in folder.rglob("*") if p.is_file() and p.parent.name != "timeline"]
    for path in sorted(others)[::4]:
        (outcome,) = damaged(folder, path, [None])
        assert outcome.error == "" or "rank" in outcome.error, path.name
        assert not outcome.rows or outcome.rows.total() == whole.rows.total(), path.name
