"""Outputs of ours as inputs: selected from, limited, split, joined, bundled, damaged."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from small_jobs import job
from trace_bytes import START, msg, packet, track

import traceconv
from traceconv.core.errors import TraceconvError
from traceconv.protobuf.message_columns import columns, frames
from traceconv.protobuf.perfetto_schema import OWN_FIELD

GOLDEN = ROOT / "golden"


def body(path):
    """A text dump without its head, which names base and ranks."""
    return Path(path).read_text(encoding="utf-8").partition("\n\n")[2]


def text(folder, *paths, **options):
    """What a merge makes of some paths, as text; the message if there is nothing."""
    out = str(folder / "out.txt")
    try:
        traceconv.merge(*map(str, paths), out=out, force=True, **{"mode": "detail", **options})
    except TraceconvError as e:
        return str(e)
    return body(out)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with captures of three ranks, and one with what is written of them."""
    folder = tmp_path_factory.mktemp("own")
    captures = job(folder / "captures")
    outputs = folder / "outputs"
    outputs.mkdir()
    traceconv.merge(str(captures), out=str(outputs / "whole.pftrace"), mode="detail")
    return captures, outputs


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options",
    [
        {"ranks": "1-2"},
        {"layers": ["device", "comm"]},
        {"layers": ["step"]},
        {"exclude": "(?i)mat"},
        {"args": ["Input Shapes", "step"]},
        {"args": []},
        {"time": "400us:900us"},
        {"steps": [50]},
        {"steps": [7]},
        {"mode": "summary", "annotate": True},
        {"align": "collective"},
        {"merge_graphs": False},
    ],
    ids=str,
)
def test_what_is_selected_is_what_would_have_been(made, options, tmp_path):
    """Selections and views of an output are those of the captures it was made of."""
    captures, outputs = made
    assert text(tmp_path, outputs / "whole.pftrace", **options) == text(
        tmp_path, captures, **options
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "case", ["msprof/step_export_slices", "trace_view/demo", "msprof/borders_by_name"]
)
@pytest.mark.parametrize("graphs", [0, 1, 7, [1, 2]], ids=str)
def test_graphs_are_selected_as_they_would_have_been(case, graphs, tmp_path):
    source, out = GOLDEN / case / "input", tmp_path / "own.pftrace"
    traceconv.merge(str(source), out=str(out), mode="detail")
    assert text(tmp_path, out, graphs=graphs) == text(tmp_path, source, graphs=graphs)


@pytest.mark.parametrize("limit", ["100K", "60K"])
def test_a_limit_holds_and_counts(made, limit, tmp_path):
    """What a file was reduced by is said of it, and what more of it is left out is added."""
    _, outputs = made
    wide, narrow = tmp_path / "wide.pftrace", tmp_path / "narrow.pftrace"
    whole = str(outputs / "whole.pftrace")
    first = traceconv.merge(whole, out=str(wide), mode="detail", limit="120K")
    second = traceconv.merge(str(wide), out=str(narrow), mode="detail", limit=limit)
    direct = traceconv.merge(whole, out=str(narrow), mode="detail", limit=limit, force=True)
    assert second.written[0].bytes <= int(limit[:-1]) * 1024
    assert lost(first) < lost(second)
    assert lost(direct) > lost(first)
    back = traceconv.convert(str(wide), str(tmp_path / "back.pftrace"))
    assert lost(back) == lost(first)


def lost(report):
    codes = ("size-limit", "size-coalesced")
    return sum(issue.count for issue in report.issues if issue.code in codes)


def test_parts_are_one_again(made, tmp_path):
    """Every row of every part, in order; arrows between the parts were lost, and are counted."""
    _, outputs = made
    whole, parts = outputs / "whole.pftrace", tmp_path / "parts"
    parts.mkdir()
    report = traceconv.merge(
        str(whole), out=str(parts / "t.pftrace"), mode="detail", limit="60K", over_limit="split"
    )
    assert len(report.written) > 2
    every = text(tmp_path, whole, mode="source").splitlines()
    found = text(tmp_path, parts, mode="source").splitlines()
    missing = [line for line in every if line not in set(found)]
    assert len(every) - len(found) == len(missing) == report.issues.count("flow-split") > 0
    assert all("->" in line for line in missing)
    again = traceconv.merge(str(parts), out=str(tmp_path / "again.pftrace"), mode="source")
    assert again.issues.count("flow-split") == report.issues.count("flow-split")
    assert again.issues.count("part-missing") == 0
    Path(report.written[1].path).unlink()
    less = traceconv.merge(str(parts), out=str(tmp_path / "less.pftrace"), mode="source")
    assert less.issues.count("part-missing") == 1


def without_own_packets(data):
    """A file as versions before such packets wrote it."""
    found = frames(data, 0, len(data), 1 << 30)
    own = columns(data, found.start, found.size, (OWN_FIELD,)).has(OWN_FIELD)
    return b"".join(
        data[begin(data, int(found.start[i])) : int(found.start[i] + found.size[i])]
        for i in np.flatnonzero(~own).tolist()
    )


def test_slices_on_a_track_of_samples_stand_beside_it(tmp_path):
    """A descriptor that makes a lane of slices one of samples, as damage does."""
    facts = msg(
        (1, msg((1, "traceconv.version"), (3, "0.1.0"))),
        (1, msg((1, "traceconv.base_ns"), (2, 5000))),
        (1, msg((1, "traceconv.ranks"), (3, "0"))),
    )
    path, out = tmp_path / "odd.pftrace", tmp_path / "out.pftrace"
    path.write_bytes(
        packet((126, facts)) + START + track(1, (2, "lane"), (8, b""))
        + of_one(10, (9, 1), (23, "A")) + of_one(20, (9, 2)) + of_one(30, (9, 4), (30, 7))
    )  # fmt: skip
    report = traceconv.convert(str(path), str(out))
    counts = report.written[0].counts
    assert (counts["slice"], counts["counter"]) == (1, 1)
    assert traceconv.validate(str(out)).ok


def of_one(ns, *fields):
    return packet((8, ns), (10, 1), (11, msg((11, 1), *fields)))


def test_ranks_written_apart_are_merged(made, tmp_path):
    captures, _ = made
    for rank in range(3):
        out = tmp_path / f"rank{rank}.pftrace"
        traceconv.merge(str(captures), out=str(out), ranks=rank, mode="detail")
    apart = [tmp_path / f"rank{rank}.pftrace" for rank in (2, 0, 1)]
    assert text(tmp_path, *apart) == text(tmp_path, captures)


def test_a_bundle_is_read(made, tmp_path):
    """By its name, beside other captures, and unpacked in a folder."""
    captures, _ = made
    out = tmp_path / "b.tar"
    report = traceconv.merge(str(captures), out=str(out), ranks="0-1", mode="detail")
    expected = text(tmp_path, captures, ranks="0-1")
    assert text(tmp_path, out) == expected
    found = traceconv.inspect(str(out))
    assert [one.rank for one in found.captures] == list(report.ranks)
    other = tmp_path / "rank2.pftrace"
    traceconv.merge(str(captures), out=str(other), ranks=2, mode="detail")
    assert text(tmp_path, out, other) == text(tmp_path, captures)
    shutil.unpack_archive(out, tmp_path / "unpacked")
    assert text(tmp_path, tmp_path / "unpacked") == expected


@pytest.mark.parametrize("ending", ["pftrace", "pftrace.gz", "tar"])
def test_an_output_beside_captures_is_left_out(made, ending, tmp_path, monkeypatch):
    """In the folder that is read; named itself it is read."""
    captures, _ = made
    folder = tmp_path / "here"
    shutil.copytree(captures, folder)
    monkeypatch.chdir(folder)
    name = f"own.{ending}"
    traceconv.merge(".", out=name, ranks=0, mode="detail")
    found = traceconv.inspect(".")
    assert [one.rank for one in found.captures] == [0, 1, 2]
    assert found.issues.count("own-output") == 1
    named = traceconv.inspect(name)
    assert ([one.rank for one in named.captures], named.issues.count("own-output")) == ([0], 0)


def test_without_a_block_its_rows_are_known_and_what_was_said_of_them_is_not(made, tmp_path):
    """Where packets of rows are gone, their neighbours are still read, and that is said."""
    _, outputs = made
    data = (outputs / "whole.pftrace").read_bytes()
    found = frames(data, 0, len(data), 1 << 30)
    of = columns(data, found.start, found.size, (10, 11, OWN_FIELD))
    events = [i for i in range(len(found.start)) if of.has(11)[i]]
    gone = events[100:140]
    kept = b"".join(
        data[begin(data, int(found.start[i])) : int(found.start[i] + found.size[i])]
        for i in range(len(found.start))
        if i not in gone
    )
    path = tmp_path / "less.pftrace"
    path.write_bytes(kept)
    report = traceconv.convert(str(path), str(tmp_path / "out.txt"))
    assert report.issues.count("details-lost") > 0
    whole = traceconv.convert(str(outputs / "whole.pftrace"), str(tmp_path / "whole.txt"))
    rows = [one.written[0].counts["slice"] for one in (report, whole)]
    accounted = sum(
        issue.count
        for issue in report.issues
        if issue.code in ("end-without-begin", "unfinished-slice")
    )
    assert rows[0] < rows[1] <= rows[0] + len(gone) + accounted


def begin(data, start):
    """Where the record of a message begins: a tag and a length before it."""
    at = start - 1
    while at > 0 and data[at - 1] >= 0x80:
        at -= 1
    return at - 1
