"""Captures of a crash: whatever is missing, what is there is read, and the report says what is not.

The whole captures are golden ones. Files are taken away, cut, emptied; nothing but an error of
ours with advice may come of it, and that only where no events are left.
"""

import gzip
import json
import random
import shutil
import sqlite3
from contextlib import closing

import pytest
from ascend_files import UNIX_US, events
from crashes import Outcome, cuts
from effort import effort
from golden_cases import case_folder
from made_run import OUTPUT, made_run
from made_run_db import SCHEMA, tables, write_database
from paths import ROOT

CASES = [
    "trace_view/level0", "trace_view/with_tables", "msprof/step_export_slices",
    "msprof/single_export_2023", "msprof/op_summary_slices", "mindspore/display",
    "mindspore/display_and_tables", "mindspore/step_table", "mindspore/host_info",
    "mindspore/host_records", "mindspore/data_pipeline", "ascend_db/framework",
    "ascend_db/two_devices",
]  # fmt: skip

STAND_INS = {
    "trace_view/with_tables": ("trace_view.json",),  # kernel_details.csv, whose stamps differ
    "msprof/op_summary_slices": ("msprof_20250301080105.json",),  # op_summary
    "mindspore/display_and_tables": ("step_trace_raw_5_detail_time.csv",),  # marks of the display
    "mindspore/host_info": ("host_info_0.csv",),  # the profiler's own timeline of the same
}
"""Files for which another one of the capture stands in, with other rows."""

MISSED = {
    ("msprof/step_export_slices", "msprof_slice_0_20250301080103.json"),
    ("msprof/single_export_2023", "msprof_0_2_1.json"),
    ("msprof/single_export_2023", "msprof_0_2_2.json"),
}
"""Files whose neighbours show that they must have been there."""

ADVICE = ("copy", "copied", "cut", "xport")


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """The name of a case, its folder and what the whole of it gives."""
    folder = tmp_path_factory.mktemp("case") / "input"
    shutil.copytree(case_folder(ROOT / "golden" / request.param) / "input", folder)
    whole = Outcome(folder)
    assert whole.rows and not whole.error
    return request.param, folder, whole


@pytest.fixture
def damaged(case):
    """Yields (path, its content, outcome) for every file; it is as before after each."""
    _, folder, _ = case

    def each(change):
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            data = path.read_bytes()
            for content in change(data):
                if content is None:
                    path.unlink()
                else:
                    path.write_bytes(content)
                try:
                    yield path, content, Outcome(folder)
                finally:
                    path.write_bytes(data)

    return each


def is_stand_in(name, path):
    return path.name in STAND_INS.get(name, ())


@pytest.mark.sample(2)
def test_any_file_may_be_missing(case, damaged):
    """What the others hold is read; of numbered series a gap is told."""
    name, folder, whole = case
    files = [p for p in folder.rglob("*") if p.is_file()]
    for path, _, outcome in damaged(lambda data: [None]):
        if outcome.error:
            assert len(files) <= 2, (path.name, outcome.error)
            assert any(word in outcome.error for word in ADVICE)
        elif not is_stand_in(name, path):
            assert not outcome.made_up(whole), path.name
        told = any(i.code == "part-missing" for i in outcome.issues)
        assert told == ((name, path.name) in MISSED), path.name


@pytest.mark.sample(3)
def test_any_file_may_be_cut(case, damaged):
    """At many places of each, half-written records among them: nothing is made up, and what is
    lost is told with the name of the file.
    """
    name, _, whole = case
    count = effort(4, 12 if name.startswith("mindspore") else 16)
    for path, content, outcome in damaged(lambda data: [data[:n] for n in cuts(data, count)]):
        where = (path.name, len(content))
        if outcome.error:
            assert path.name in outcome.error, where
            assert any(word in outcome.error for word in ADVICE), where
        else:
            assert is_stand_in(name, path) or not outcome.made_up(whole), where
            assert not outcome.lost(whole) or outcome.names(path.name, whole), where


@pytest.mark.sample(2)
def test_files_without_content_are_harmless(case, damaged):
    """Each file, emptied: the others are read."""
    name, _, whole = case
    for path, _, outcome in damaged(lambda data: [b""]):
        if outcome.error:
            assert not outcome.rows
            assert any(word in outcome.error for word in ADVICE)
        else:
            assert is_stand_in(name, path) or not outcome.made_up(whole), path.name


def test_marks_of_complete_files_are_harmless(case, tmp_path):
    """A ``.done`` beside every file, empty or with a size in it."""
    _, folder, whole = case
    copy = tmp_path / "input"
    shutil.copytree(folder, copy)
    for number, path in enumerate(sorted(p for p in copy.rglob("*") if p.is_file())):
        if not path.name.endswith(".done"):
            path.with_name(f"{path.name}.done").write_text("filesize:7\n" if number % 2 else "")
    outcome = Outcome(copy)
    assert (outcome.rows, outcome.error) == (whole.rows, "")


def test_a_packed_timeline_may_be_cut(tmp_path):
    """A gzip stream that ends early, even within its trailer: the events before the end."""
    more = [{"ph": "X", "name": "Add", "pid": 7, "tid": 2, "ts": f"{UNIX_US + i}.500", "dur": 0.1}
            for i in range(3000)]  # fmt: skip
    packed = gzip.compress(json.dumps(events(UNIX_US, *more)).encode())
    path = tmp_path / "w_1_20250301080000123_ascend_pt" / OUTPUT / "trace_view.json.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(packed)
    whole = Outcome(tmp_path)
    counts = []
    for n in cuts(packed, effort(4, 12))[2:]:
        path.write_bytes(packed[:n])
        outcome = Outcome(tmp_path)
        assert not outcome.made_up(whole)
        assert outcome.names(path.name, whole)
        counts.append(outcome.rows.total())
    assert counts == sorted(counts)
    assert counts[-1] == 3001  # of a file without the last byte of its check sum


# -- databases ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A framework's database of many pages, in which a viewer has changed every row, so that pages
    of a table lie in no order; its folder, its file and what it gives.
    """
    folder = write_database(made_run(30), tmp_path_factory.mktemp("db"))
    path = folder / OUTPUT / "ascend_pytorch_profiler_0.db"
    with closing(sqlite3.connect(path)) as connection:
        for table in ("TASK", "CANN_API", "PYTORCH_API"):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN depth TEXT")
            connection.execute(f"UPDATE {table} SET depth = 'on the third level'")
        connection.commit()
    return folder, path, Outcome(folder)


@pytest.mark.thorough
def test_cut_at_every_page(database):
    """At page borders and within pages; the fewer pages are missing, the more is read."""
    folder, path, whole = database
    data = path.read_bytes()
    counts = []
    for number in range(1, len(data) // 4096):
        for more in (0, 1700):
            path.write_bytes(data[: number * 4096 + more])
            outcome = Outcome(folder)
            if outcome.error:  # the schema is not there
                assert "-wal file" in outcome.error and not counts
                continue
            assert not outcome.made_up(whole)
            assert outcome.names(path.name, whole)
            counts.append(outcome.rows.total())
    path.write_bytes(data)
    assert counts == sorted(counts)
    assert len(set(counts)) > 10


def test_one_page_of_many_costs_its_own_rows(database):
    """However early in its table the page stands."""
    folder, path, whole = database
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    outcome = Outcome(folder)
    path.write_bytes(data)
    assert 0 < outcome.lost(whole) < 4096 // 16
    assert [i.places[0] for i in outcome.issues if i.code == "truncated"] == ["end of file"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(24))
def test_cut_and_damaged(database, seed):
    """Bytes turned over besides, in the pages that refer to others, too: rows or an error of ours,
    however long the file says that it was.
    """
    folder, path, _ = database
    data = path.read_bytes()
    chance = random.Random(seed)
    broken = bytearray(data[: len(data) * chance.randrange(6, 10) // 10])
    inner = [at for at in range(0, len(broken), 4096) if broken[at] == 5]
    for at in (100, *inner, *chance.sample(range(16, 100), 2 * (seed % 3))):
        broken[at + chance.randrange(1, 40)] = chance.randrange(256)
    path.write_bytes(broken)
    outcome = Outcome(folder)
    path.write_bytes(data)
    assert outcome.error or outcome.issues


@pytest.fixture
def journalled(tmp_path):
    """A database whose profiler was killed: two steps written and taken over into the file, two
    more committed to its journal only. Its folder and file.
    """
    live = tmp_path / "live.db"
    connection = sqlite3.connect(live)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.executescript(SCHEMA)
    tables(made_run(2)).write(connection)
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in (2, 3):
        later(connection, number)
        connection.commit()
    folder = tmp_path / "killed"
    folder.mkdir()
    for ending in ("", "-wal", "-shm"):
        shutil.copy(f"{live}{ending}", folder / f"ascend_pytorch_profiler_0.db{ending}")
    connection.close()
    return folder, folder / "ascend_pytorch_profiler_0.db"


def later(connection, number):
    """Copies of all tasks, so many times 24 us later."""
    columns = "deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, streamId"
    shift = 24_000 * (number - 1)
    connection.execute(
        f"INSERT INTO TASK SELECT startNs + {shift}, endNs + {shift}, {columns}, taskId, modelId "
        f"FROM TASK WHERE startNs < (SELECT MIN(startNs) FROM TASK) + 24000"
    )


def tasks(outcome):
    return sum(n for (layer, _, _), n in outcome.rows.items() if layer == "device")


def test_what_was_committed_to_the_journal_is_read(journalled):
    """With the journal all is there, with its index or without."""
    folder, path = journalled
    whole = Outcome(folder)
    own = tasks(whole) // 3
    assert tasks(whole) == 3 * own > 0
    path.with_name(f"{path.name}-shm").unlink()
    assert Outcome(folder).rows == whole.rows
    assert [i.code for i in whole.issues if i.code == "truncated"] == []


def test_without_its_journal_a_database_has_what_was_taken_over(journalled):
    """A third of the tasks; nothing in the file says that there were more."""
    folder, path = journalled
    whole = Outcome(folder)
    path.with_name(f"{path.name}-wal").unlink()
    outcome = Outcome(folder)
    assert 3 * tasks(outcome) == tasks(whole)
    assert not outcome.made_up(whole)


def test_a_journal_may_be_cut(journalled):
    """Transactions that are complete count; that one is not is told, with the journal named."""
    folder, path = journalled
    whole = Outcome(folder)
    journal = path.with_name(f"{path.name}-wal")
    data = journal.read_bytes()
    third, found = tasks(whole) // 3, set()
    for n in cuts(data, effort(8, 40)):
        journal.write_bytes(data[:n])
        outcome = Outcome(folder)
        found.add(tasks(outcome) // third)
        assert not outcome.made_up(whole)
        if tasks(outcome) < tasks(whole) and n > 32:
            assert ("end of its -wal file",) in [i.places[:1] for i in outcome.issues], n
    assert found == {1, 2}


def test_a_database_that_lies_in_its_journal_only(tmp_path):
    """With it all is there; without it the error says what to copy."""
    live = tmp_path / "live.db"
    connection = sqlite3.connect(live)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.executescript(SCHEMA)
    tables(made_run()).write(connection)
    connection.commit()
    folder = tmp_path / "killed"
    folder.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(f"{live}{ending}", folder / f"ascend_pytorch_profiler_0.db{ending}")
    connection.close()
    assert Outcome(folder).rows == Outcome(write_database(made_run(), tmp_path / "whole")).rows
    (folder / "ascend_pytorch_profiler_0.db-wal").unlink()
    assert "-wal file" in Outcome(folder).error
