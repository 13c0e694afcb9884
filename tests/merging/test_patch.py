"""Trace-event files merged by their bytes."""

import json
from pathlib import Path

import pytest
from paths import ROOT

from traceconv import native
from traceconv.io.sources import sources
from traceconv.merging import patch
from traceconv.merging.patch import Copier, Unusual

CASES = sorted(p for p in (ROOT / "golden").glob("*/*/input/**/*.json") if p.stat().st_size)


def copied(path, index=0, rank=0):
    """The events as JSON values, and the copier."""
    copier = Copier(index, f"Rank {rank}")
    (source,) = sources([str(path)])
    return b"".join(copier.blocks(source, source.names()[0])), copier


def events(path, **rank):
    text, _ = copied(path, **rank)
    return json.loads(b"[" + text + b"]")


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "t.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


@pytest.fixture(params=["native", "python"])
def tier(request, monkeypatch):
    """Both tiers; the first only where there is a compiler."""
    if request.param == "python":
        monkeypatch.setenv("TRACECONV_NATIVE", "0")
    elif native.copier() is None:
        pytest.skip("needs the compiled parts")


def test_every_byte_but_ids_is_kept(file, tier):
    """Digits, spacing, order and unknown members of an event stay as they are written."""
    path = file(
        b'[{"ts": 1718180918997124.650, "x\\u00e9":[1.0,  {}],"pid":7,"ph": "X","dur":1e1}]'
    )
    text, _ = copied(path)
    expected = b'{"ts": 1718180918997124.650, "x\\u00e9":[1.0,  {}],"pid":1,"ph": "X","dur":1e1}'
    assert text.split(b",\n")[0] == expected


def test_processes_of_ranks_do_not_meet(file, tier):
    """The same process id becomes another number in every rank, and says its rank."""
    path = file([{"ph": "i", "pid": 5, "ts": 1}, {"ph": "i", "pid": "5", "ts": 2}])
    first, second = events(path), events(path, index=1, rank=9)
    assert [e["pid"] for e in first] == [1] * 4
    assert [e["pid"] for e in second] == [4097] * 4
    assert [e["args"] for e in second[2:]] == [{"name": "Rank 9 pid 5"}, {"sort_index": 4096}]


def test_names_and_order_of_processes_are_told_once(file, tier):
    """What names a process is gathered; its order among the rank's processes is kept."""
    path = file(
        [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "Hardware"}},
            {"ph": "M", "pid": 1, "name": "process_sort_index", "args": {"sort_index": 9}},
            {"ph": "M", "pid": 1, "name": "thread_name", "tid": 3, "args": {"name": "Stream 3"}},
            {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "Python"}},
        ]
    )
    told = events(path, rank=4)
    assert [(e["pid"], e["name"], *e["args"].values()) for e in told] == [
        (1, "thread_name", "Stream 3"),
        (2, "process_name", "Rank 4 Python"),
        (2, "process_sort_index", 0),
        (1, "process_name", "Rank 4 Hardware"),
        (1, "process_sort_index", 1),
    ]


@pytest.mark.parametrize(
    ("phase", "given", "index", "expected"),
    [
        ("s", 7, 0, 7),
        ("s", 7, 1, 7 + (1 << 40)),
        ("f", "7", 1, 7 + (1 << 40)),
        ("b", "0x1F", 2, 0x1F + (2 << 40)),
        ("f", 1736408883732241564, 0, "1818f0b4e2ea6c9c"),
        ("X", 7, 1, 7),
        ("C", "7", 1, "7"),
    ],
)
def test_ids_of_ranks_are_set_apart(file, tier, phase, given, index, expected):
    """Ids of arrows and asynchronous events, in either spelling; others are no links."""
    path = file([{"ph": phase, "pid": 1, "id": given, "ts": 5, "dur": 1}])
    if isinstance(expected, str) and phase == "f":
        expected = f"{given:x}"
    assert events(path, index=index)[0]["id"] == expected


def test_other_members_are_kept_for_the_head(file, tier):
    """What stands before and behind the events is told, as it is written."""
    path = file(
        b'\xef\xbb\xbf{"a": 1.50, "traceEvents": [{"ph":"i","ts":1,"pid":1}] , "b": {"c":[]}}'
    )
    _, copier = copied(path)
    assert copier.members == {"a": b"1.50", "b": b'{"c":[]}'}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'[{"ph":"X","ts":1,"dur":1,"pid":1},',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1}] x',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1,"a":tru}]',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1,"a":"\x01"}]',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1,"pid":2}]',
        b'[{"ph":"s","ts":1,"pid":1,"id":1.5}]',
        b'[{"ph":"b","ts":1,"pid":1,"id2":{"global":1}}]',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1}{"ph":"X","ts":1,"dur":1,"pid":1}]',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1},,{"ph":"X","ts":1,"dur":1,"pid":1}]',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1},]',
        b"[1]",
        b'{"traceEvents": {"a": 1}}',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1,"a":"\xff"}]',
        b'[{"ph":"X","ts":1,"dur":1,"pid":1,"\xff":1}]',
        b'[{"ph":"X","ts":1,"dur":1,"pid":"\xff"}]',
        b'[{"ph":"s","ts":1,"pid":1,"id":"\xff"}]',
        b'[{"ph":"M","pid":1,"name":"process_name","args":{"name":"\xed\xa0\x80"}}]',
        b'{"\xff": 1, "traceEvents": []}',
        b'{"traceEvents": [], "a": "\xff"}',
        b'{"a": 1, "a": 2, "traceEvents": []}',
        b'{"a": 1, "traceEvents": [], "a": 2}',
        b'{"traceEvents": [], "traceEvents": [{"ph":"i","ts":1,"pid":1}]}',
        b'{"traceEven3"}, "traceEvents": []}',
        b'{"a": tru, "traceEvents": []}',
        b'[{"ph":"X","pid":1}]',
        b'[{"ph":"X","pid":1,"ts":1}]',
        b'[{"ph":"X","pid":1,"ts":1,"dur":-1}]',
        b'[{"ph":"X","pid":1,"ts":9223372036854775.9,"dur":1}]',
        b'[{"ph":"i","pid":1,"ts":"soon"}]',
        b'[{"ph":"i","pid":1,"ts":1e400}]',
        b'[{"ph":"i","pid":1,"ts":null}]',
        b'[{"ph":"i","pid":1,"ts":1,"tid":4294967296}]',
        b'[{"ph":"i","pid":1,"ts":1,"tid":-1}]',
        b'[{"ph":"i","pid":1,"ts":1,"tid":1.5}]',
        b'[{"ph":"i","pid":1,"ts":1,"tid":null}]',
    ],
)
def test_what_cannot_be_copied_is_left_to_readers(file, tier, content):
    """Damage and rare forms are refused, whatever comes before them."""
    with pytest.raises(Unusual):
        copied(file(content))


@pytest.mark.parametrize("path", CASES, ids=lambda p: "-".join(p.parts[-4:]))
def test_tiers_copy_the_same(path, monkeypatch):
    """With and without the compiled part: equal bytes and counts, or both refuse."""

    def outcome():
        try:
            text, copier = copied(path, index=3, rank=5)
        except Unusual:
            return None
        return text, copier.phases, copier.members

    native = outcome()
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    assert native == outcome()


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_do_not_matter(chunk, tier, monkeypatch):
    """A file read in tiny pieces gives the same bytes."""
    path = Path(ROOT / "golden/trace_view/demo/input").rglob("trace_view.json").__next__()
    whole, _ = copied(path)
    monkeypatch.setattr(patch, "CHUNK_BYTES", max(chunk, 64) if chunk > 1 else 4096)
    pieces, _ = copied(path)
    assert whole == pieces
