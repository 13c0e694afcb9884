"""Stores: packed ranks come back equal, from one file or several; damage is refused."""

import json
import shutil
from itertools import count

import numpy as np
import pytest
from kineto_files import CALL, KERNEL, row, write

import traceconv
from traceconv import (
    EmptyResultError,
    MalformedInputError,
    OptionError,
    RankError,
    SourceError,
    TraceconvError,
)
from traceconv.store import blocks


@pytest.fixture
def job(tmp_path):
    """A folder with the captures of two ranks."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        step = row("user_annotation", "ProfilerStep#551", 900, 900, rank, 100)
        info = {"distributedInfo": {"rank": rank, "world_size": 4}}
        write(folder / f"rank{rank}.json", [step, CALL, KERNEL], info)
    return folder


@pytest.fixture
def store(job, tmp_path):
    """Both ranks in a store."""
    traceconv.pack(job, out=tmp_path / "run.tcz")
    return tmp_path / "run.tcz"


def dump(source, out, **options):
    """The text dump of a source."""
    traceconv.merge(source, out=out, force=True, **options)
    return out.read_bytes()


@pytest.mark.sample(4)
def test_a_store_gives_what_its_captures_give(good, tmp_path):
    """Events with their arguments, steps and tables of every case; issues with their places."""
    traceconv.pack("input", out=tmp_path / "run.tcz", **good.reading, jobs=1)
    view = {key: value for key, value in good.options.items() if key not in good.reading}
    options = {"scope": True, "jobs": 1, "copy": False, **view, "mode": "detail", "force": True}
    found = []
    for source, reading in (("input", good.reading), (tmp_path / "run.tcz", {})):
        out = tmp_path / "out.txt"
        try:
            report = traceconv.merge(source, out=out, **options, **reading)
        except EmptyResultError as e:  # tables without a timeline
            found.append(str(e))
        else:
            found.append((out.read_text(), report.as_dict()))
    assert found[1] == found[0]


@pytest.mark.sample(2)
def test_tables_of_the_profiler_come_back(sampled, tmp_path):
    """The columns of side tables, or the error that reading them ends with."""
    traceconv.pack("input", out=tmp_path / "run.tcz", **sampled.reading, jobs=1)

    def tables(source, **reading):
        for trace in traceconv.open(source, **reading).traces(align="none"):
            for name, table in trace.side_tables.items():
                try:
                    columns = {key: column.tolist() for key, column in table.columns.items()}
                except TraceconvError as e:
                    columns = type(e), str(e)
                yield trace.rank, name, table.file, repr(columns), list(table.issues)

    assert [*tables(tmp_path / "run.tcz")] == [*tables("input", **sampled.reading)]


def test_a_store_is_read_where_its_captures_are_gone(job, store, tmp_path):
    """It holds arguments, names and identities."""
    expected = dump(job, tmp_path / "a.txt", mode="detail")
    shutil.rmtree(job)
    assert dump(store, tmp_path / "b.txt", mode="detail") == expected
    assert traceconv.open(store).found[0].world_size == 4


def test_ranks_of_a_store_are_selected(store):
    """As those of captures are."""
    assert [trace.rank for trace in traceconv.open(store).ranks(1).traces()] == [1]
    with pytest.raises(RankError, match="rank 7 does not exist"):
        traceconv.open(store).ranks(7)


def test_stores_of_several_hosts_are_one_job(job, store, tmp_path):
    """Each holds some ranks; a rank must not be in two of them."""
    halves = [tmp_path / f"{rank}.tcz" for rank in range(2)]
    for rank, half in enumerate(halves):
        traceconv.pack(job, out=half, ranks=rank)
    together = dump([str(half) for half in halves], tmp_path / "a.txt", mode="detail")
    assert together == dump(store, tmp_path / "b.txt", mode="detail")
    mixed = [str(halves[0]), str(job / "rank1.json")]
    assert [one.rank for one in traceconv.open(*mixed)] == [0, 1]
    with pytest.raises(RankError, match=r"rank 0 is claimed twice.*they are in two inputs"):
        traceconv.open(halves[0], store)


@pytest.mark.parametrize("option", [{"reader": "kineto"}, {"rank_from": "name"}, {"mapping": "x"}])
def test_how_captures_are_found_is_decided_when_they_are_packed(store, option):
    """The files are not there any more."""
    with pytest.raises(OptionError, match="decided when the ranks were packed"):
        traceconv.open(store, **option)


def test_words_for_communication_are_given_when_ranks_are_packed(job, tmp_path):
    """They decide how kernels are read."""
    plain, worded = tmp_path / "plain.tcz", tmp_path / "worded.tcz"
    traceconv.pack(job, out=plain)
    traceconv.pack(job, out=worded, comm_patterns="matmul")
    with pytest.raises(OptionError, match="packed without patterns"):
        traceconv.stats(plain, comm_patterns="matmul")
    out = tmp_path / "out.txt"
    expected = dump(job, out, mode="detail", comm_patterns="matmul")
    assert dump(worded, out, mode="detail") == expected
    assert dump(worded, out, mode="detail", comm_patterns="matmul") == expected


def test_a_store_beside_captures_is_not_read_with_them(job, store):
    """It is an output of traceconv; named alone, it is an input."""
    shutil.copy(store, job / "run.tcz")
    found = traceconv.open(job)
    assert [one.rank for one in found] == [0, 1]
    assert found.issues.count("own-output") == 1


def test_a_store_does_not_replace_what_it_is_made_of(store):
    """Not with ``force``, either."""
    with pytest.raises(traceconv.OutputPathError, match="is an input"):
        traceconv.pack(store, out=store, force=True)


def test_a_store_of_a_store_is_the_same(store, tmp_path):
    """Packed again, nothing changes."""
    traceconv.pack(store, out=tmp_path / "again.tcz")
    assert (tmp_path / "again.tcz").read_bytes() == store.read_bytes()


# -- damage -------------------------------------------------------------------------------


def outcome(store, out):
    """The trace and the tables of a store, or the error."""
    try:
        tables = [
            table.columns
            for trace in traceconv.open(store).traces(align="none")
            for table in trace.side_tables.values()
        ]
        return dump(store, out, mode="detail", jobs=1), len(tables)
    except TraceconvError as e:
        return str(e)


def test_damage_is_an_error_and_never_another_answer(store, tmp_path):
    """Wherever a byte is another one, or some are gone."""
    content = store.read_bytes()
    whole = outcome(store, tmp_path / "out.txt")
    random = np.random.default_rng(5)
    damaged = tmp_path / "damaged.tcz"
    for at in {
        *random.integers(0, len(content), 150).tolist(),
        *range(len(content) - 24, len(content)),
    }:
        changed = bytearray(content)
        changed[at] ^= 1 << int(random.integers(8))
        damaged.write_bytes(changed)
        found = outcome(damaged, tmp_path / "out.txt")
        assert isinstance(found, str) or found == whole, at


def test_a_store_that_was_cut_off_is_refused(store, tmp_path):
    """A copy that ended too early, or misses its beginning."""
    content = store.read_bytes()
    cut = tmp_path / "cut.tcz"
    for size in range(len(b"traceconv store "), len(content), 97):
        cut.write_bytes(content[:size])
        with pytest.raises(MalformedInputError, match="pack the captures again"):
            traceconv.open(cut)


def test_a_store_of_a_newer_version_is_refused(store, tmp_path):
    """It says which version it is of."""
    newer = tmp_path / "newer.tcz"
    newer.write_bytes(store.read_bytes().replace(b"traceconv store 2\n", b"traceconv store 3\n"))
    with pytest.raises(
        MalformedInputError, match="is of version 3, this traceconv reads version 2"
    ):
        traceconv.open(newer)


def test_another_file_with_the_name_of_a_store_is_no_store(tmp_path):
    """Content decides, not the name."""
    other = tmp_path / "run.tcz"
    other.write_bytes(b"PK\5\6" + bytes(18))
    with pytest.raises(TraceconvError):
        traceconv.open(other)


def rewritten(store, change):
    """The store with another directory."""
    content = store.read_bytes()
    whole, stored = (int.from_bytes(content[i : i + 8], "little") for i in (-24, -16))
    end = len(content) - 24
    directory = json.loads(blocks.unpack(content[end - stored : end], whole))
    change(directory)
    text = json.dumps(directory).encode()
    stream = blocks.pack(text)
    ends = len(text).to_bytes(8, "little") + len(stream).to_bytes(8, "little")
    store.write_bytes(content[: end - stored] + stream + ends + content[-8:])


def _remove(ranks, name):
    for one in ranks:
        del one[name]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["ranks"][0].update(at=-5),
        lambda d: d["ranks"][0].update(at=2**40),
        lambda d: d["ranks"][0].update(size=2**62),
        lambda d: d["ranks"][0].update(at="x"),
        lambda d: d["ranks"][0]["capture"].update(rank="zero"),
        lambda d: d["ranks"][0]["capture"].update(rank=None),
        lambda d: d["ranks"][0]["capture"].update(files=7),
        lambda d: d["ranks"][0]["capture"].update(source=[]),
        lambda d: d["ranks"][0]["capture"].update(clock={"domain": "no"}),
        lambda d: d["ranks"][0]["capture"].update(parts=[{}]),
        lambda d: d.update(issues=[["no-such-code", "", -1, 1, []]]),
        lambda d: d.update(ranks={}),
        lambda d: d.update(unknown=3),
        lambda d: _remove(d["ranks"], "capture"),
    ],
    ids=count(),
)
def test_a_directory_that_lies_is_refused(store, change):
    """Whoever wrote it."""
    rewritten(store, change)
    with pytest.raises((MalformedInputError, SourceError)):
        for _ in traceconv.open(store).traces():
            pass


def test_blocks_do_not_unpack_to_more_than_their_column():
    """A small block of many zeros takes no more memory than the column it is of."""
    bomb = blocks.pack(bytes(100 << 20))
    with pytest.raises(ValueError, match="does not hold 80 bytes"):
        blocks.unpacked(bomb, [len(bomb)], np.dtype("i8"), 10, False)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "f8"])
def test_columns_of_every_type_come_back(dtype):
    """With the least and the greatest value, over the bounds of blocks."""
    random = np.random.default_rng(3)
    column = random.integers(0, 256, 3 * blocks.BYTES // 2, np.uint8).view(dtype)
    if dtype != "f8":
        column = np.append(column, np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype))
    differences, packed = blocks.packed(column)
    packed = [*packed]
    sizes = [len(block) for block in packed]
    back = blocks.unpacked(b"".join(packed), sizes, column.dtype, len(column), differences)
    assert back.tobytes() == column.tobytes()
    first = blocks.unpacked(packed[1], sizes[1:2], column.dtype, len(column), differences, 1)
    assert first.tobytes() == column[blocks.rows_of(column.dtype) :].tobytes()


def test_times_are_stored_as_differences_and_durations_are_not():
    """Whichever is smaller; each comes back."""
    random = np.random.default_rng(3)
    durations = random.integers(1000, 60000, 9000)
    for column, differences in ((np.cumsum(durations) + (1 << 60), True), (durations, False)):
        chosen, packed = blocks.packed(column)
        packed = [*packed]
        assert chosen is differences
        sizes = [len(block) for block in packed]
        back = blocks.unpacked(b"".join(packed), sizes, column.dtype, len(column), chosen)
        assert (back == column).all()
