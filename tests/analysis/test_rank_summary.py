"""The summary of a rank: encoded, in a file, read again; what is none is refused."""

import msgspec
import numpy as np
import pytest
from report_job import summaries
from synthetic_job import Job

from traceconv.analysis import rank_summary
from traceconv.analysis.rank_summary import RankSummary, decode, encode
from traceconv.core.codes import Severity
from traceconv.core.errors import Issue, MalformedInputError


@pytest.fixture(scope="module")
def known():
    """What a report needs of one rank."""
    return next(summaries(Job(1, 2, 1, steps=3)))


def same(one, two):
    """Whether two columns hold the same."""
    return one.dtype == two.dtype and one.shape == two.shape and one.tolist() == two.tolist()


def all_columns(summary):
    """Every column by a path."""
    pieces = summary.excerpts
    tables = {**summary.tables, "links": summary.links, "calls": pieces.calls}
    tables |= {"places": pieces.places, "curves": pieces.curves}
    found = {(t, h): column for t, columns in tables.items() for h, column in columns.items()}
    found |= {
        ("collectives", name): column
        for name, column in msgspec.structs.asdict(summary.collectives).items()
        if isinstance(column, np.ndarray)
    }
    found |= {
        ("replay", name): column
        for name, column in msgspec.structs.asdict(summary.replay).items()
        if isinstance(column, np.ndarray)
    }
    return found


def test_a_summary_comes_back_as_it_was(known, tmp_path):
    """Columns with their types and shapes, texts, groups, rules, issues."""
    issue = Issue("truncated", Severity.LOSS, "a.json", 2, ("byte 7",))
    known = msgspec.structs.replace(
        known, issues=(issue,), unread=("why",), graphs=(1, 2), steps=(3,)
    )
    path = tmp_path / "rank-0.summary"
    rank_summary.save(encode(known), path)
    again = rank_summary.load(path)
    for name in ("rank", "span_ns", "rules", "graphs", "steps", "issues", "unread"):
        assert getattr(again, name) == getattr(known, name), name
    assert again.collectives.groups == known.collectives.groups
    assert again.collectives.kinds == known.collectives.kinds
    before, after = all_columns(known), all_columns(again)
    assert list(before) == list(after)
    assert len(before) > 50
    assert [key for key in before if not same(before[key], after[key])] == []


def test_columns_are_bytes_in_one_order():
    """Whoever reads them, on whatever machine."""
    big = np.array([1, 2**40], ">i8")
    again = decode(encode(RankSummary(rank=0, tables={"t": {"x": big}}))).tables["t"]["x"]
    assert (again.tolist(), again.dtype.str) == ([1, 2**40], "<i8")
    again[0] = 7  # it is memory of its own


def test_text_that_is_not_unicode_can_be_written():
    """Names of events may be anything."""
    texts = np.array(["a\ud800b", "c"], object)
    summary = RankSummary(rank=3, tables={"t": {"x": texts, "n": np.arange(2)}}, unread=("\udfff",))
    again = decode(encode(summary))
    assert again.tables["t"]["x"].tolist() == ["a\\ud800b", "c"]
    assert (again.tables["t"]["n"].tolist(), again.unread) == ([0, 1], ("\\udfff",))


def test_what_is_no_summary_is_refused(known, tmp_path):
    """Cut anywhere, empty, of another version or of other values: an error that says where."""
    path = tmp_path / "rank-0.summary"
    whole = encode(known)
    pieces = [whole[:n] for n in (0, 1, 100, len(whole) // 2, len(whole) - 1)]
    other = [msgspec.msgpack.encode(value) for value in ({}, [], [1], [99, {}], [1, {"rank": "x"}])]
    for content in (*pieces, *other, b"\xc1"):
        path.write_bytes(content)
        with pytest.raises(MalformedInputError, match=r"rank-0\.summary: not a summary of a rank"):
            rank_summary.load(path)
    with pytest.raises(MalformedInputError, match=f"of version 99, not {rank_summary.VERSION}"):
        decode(other[3])
    with pytest.raises(MalformedInputError, match="cannot be read"):
        rank_summary.load(tmp_path / "none")


@pytest.mark.parametrize(
    "change",
    [
        {"tables": {"t": {"x": {"type": "O", "shape": [1], "bytes": b"12345678"}}}},
        {"tables": {"t": {"x": {"type": "<i8", "shape": [2], "bytes": b"12345678"}}}},
        {"tables": {"t": {"x": {"type": "<i8", "shape": [1], "bytes": b"12345678"}, "y": []}}},
        {"tables": {"t": {"x": 5}}},
        {"replay": {"start_ns": {"type": "<f8", "shape": [0], "bytes": b""}}},
        {"replay": {"start_ns": {"type": "<i8", "shape": [1], "bytes": bytes(8)}}},
        {"replay": {"before": {"type": "<i4", "shape": [0, 1], "bytes": b""}}},
        {"replay": {"at": {"type": "<i4", "shape": [1], "bytes": bytes(4)}}},
        {"issues": [{"code": "no such", "severity": "loss", "file": "", "count": 1}]},
        {"collectives": {"rank": 0, "groups": [], "kinds": []}},
        {
            "collectives": {
                "rank": 0,
                "groups": [{"key": "a"}],
                "kinds": ["p2p"],
                **{
                    name: {"type": "<i4", "shape": [1], "bytes": bytes(4)}
                    for name in ("group", "kind", "step")
                },
                **{
                    name: {"type": "<i8", "shape": [1], "bytes": bytes(8)}
                    for name in ("size", "start_ns", "end_ns")
                },
            }
        },
    ],
    ids=lambda change: str(change)[:40],
)
def test_columns_that_do_not_fit_are_refused(change):
    """Nothing is executed, and nothing points at what is not there."""
    content = msgspec.msgpack.encode([rank_summary.VERSION, {"rank": 0, **change}])
    with pytest.raises(MalformedInputError):
        decode(content)


def test_whatever_byte_is_damaged_it_is_a_summary_or_an_error(known):
    """Never an error of another kind."""
    whole = encode(known)
    for at in range(0, len(whole), max(len(whole) // 300, 1)):
        try:
            decode(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        except MalformedInputError:
            continue
