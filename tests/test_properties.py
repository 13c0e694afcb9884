"""What holds for every golden case, and so for every reader: nothing depends on luck."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from functools import lru_cache
from itertools import groupby, islice, pairwise
from pathlib import Path

import pytest
from effort import effort
from golden_cases import CASES, case_folder, issue_lines, outcome, usual_outcome
from trace_bytes import content

import traceconv
from traceconv import TraceconvError
from traceconv import validation as checks
from traceconv.alignment import plan as align
from traceconv.core.errors import Severity
from traceconv.core.model import Covered
from traceconv.io import window as _window
from traceconv.readers.shared.trace_events import timeline as _traceevents
from traceconv.run import executor as _executor
from traceconv.writers import output as _output
from traceconv.writers.perfetto import encoder as _encoder

DAY_NS = 86_400_000_000_000


def captures(case):
    return traceconv.open("input", **case.reading)


def event_files(case):
    """The files events are read from, each once (a database can hold several ranks)."""
    return list(dict.fromkeys(c.source.path(n) for c in captures(case).found for n in c.files))


def body(text):
    """A text dump without its head, which names base and ranks."""
    return text.partition("\n\n")[2]


def traces(case):
    """What is found in a case, and what is to be written of it in the detail view."""
    found = captures(case)
    return found, list(found.traces("detail", scope=True))


usual_traces = lru_cache(maxsize=1)(traces)
"""The same, of the case as it is: tests of a case follow each other."""


def test_tiny_chunks_give_the_same_error(bad, tmp_path, monkeypatch):
    """Reading 8 bytes at a time meets every boundary; what is wrong is wrong in the same words."""
    usual = usual_outcome(bad)
    assert usual.startswith("error ")
    monkeypatch.setattr(_traceevents, "CHUNK_BYTES", 8)
    assert outcome(bad, tmp_path) == usual


@pytest.mark.sample(3)
def test_tiny_chunks_and_threads_give_the_same_bytes(sampled, tmp_path, monkeypatch):
    """Nothing in an output depends on the moment, on where a chunk or a block ends, or on how many
    threads inflate and compress: chunks of 8 bytes, blocks as tiny as they may be.
    """
    monkeypatch.setattr(_traceevents, "CHUNK_BYTES", 8)
    monkeypatch.setattr(_window, "AHEAD_BYTES", 0)
    monkeypatch.setattr(_encoder, "BLOCK", 16)  # bytes of Perfetto do depend on this
    monkeypatch.setattr(_output, "WORTHWHILE", 0)

    def written(name, count):
        monkeypatch.setattr(_executor, "thread_count", lambda jobs, workers: count)
        report = sampled.merge(tmp_path / name, "detail")
        assert issue_lines(report.issues) == usual_issues
        return content(tmp_path / name)

    usual, report = sampled.merged("json", "detail")
    usual_issues = issue_lines(report.issues)
    one, *others = [written("out.pftrace", count) for count in (1, 4, 2)[: effort(2, 3)]]
    assert others == [one] * len(others)
    for count in (4, 1, 2)[: effort(1, 3)]:
        assert written("out.json.gz", count) == usual.read_bytes()


@pytest.mark.sample(3)
def test_every_cut_is_noticed(sampled, tmp_path, monkeypatch):
    """A file cut at any part ends in an issue or an error of ours; nothing else escapes."""
    files, parts = event_files(sampled)[:4], effort(4, 16)
    shutil.copytree("input", tmp_path / "input")
    monkeypatch.chdir(tmp_path)
    whole, text = compared(*usual_traces(sampled)), usual_outcome(sampled)
    for relative in files:
        data = relative.read_bytes()
        for part in range(1, parts):
            relative.write_bytes(data[: len(data) * part // parts])
            if part * 2 == parts:
                assert outcome(sampled, tmp_path) != text or "loss truncated" in text
            else:
                assert reading(sampled) != whole or "loss truncated" in text
        relative.write_bytes(data)


def reading(case):
    """What is to be written, as far as it can be compared at once; or the error instead."""
    try:
        return compared(*traces(case))
    except TraceconvError as e:
        return str(e)


def compared(found, read):
    """Columns, issues and notes."""
    columns = [
        column.tobytes()
        for trace in read
        for table in (trace.events, trace.counters, trace.flows)
        for column in table.columns().values()
    ]
    issues = [issue for found_in in (found, *read) for issue in found_in.issues]
    return columns, issues, [(trace.rank, trace.notes, list(trace.strings)) for trace in read]


@pytest.mark.sample(2)
def test_chrome_json_reads_back_the_same(sampled, tmp_path):
    """What we write as Chrome JSON, our own reader turns into the same events."""
    out, _ = sampled.merged("json", "detail")
    traceconv.convert(str(out), str(tmp_path / "back.txt"), reader="chrome_json", force=True)
    assert body((tmp_path / "back.txt").read_text()) == body(sampled.usual_text("detail"))


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["summary", "detail"])
def test_perfetto_reads_back_the_same(sampled, mode, tmp_path):
    """What we write as Perfetto, our own reader turns into the same events, facts and losses."""
    out, wrote = sampled.merged("pftrace", mode)
    read = traceconv.convert(str(out), str(tmp_path / "back.txt"))
    assert body((tmp_path / "back.txt").read_text()) == body(sampled.usual_text(mode))
    assert [facts(read, rank) for rank in read.ranks] == [facts(wrote, rank) for rank in read.ranks]
    assert losses(read.issues) == losses(wrote.issues)


@pytest.mark.sample(2)
def test_perfetto_is_written_the_same_again(sampled, tmp_path):
    """What was read of a file of ours becomes the same bytes, time and again, and the Chrome JSON
    that is made of the input itself."""
    out, _ = sampled.merged("pftrace", "detail")
    names = [str(tmp_path / f"{n}.pftrace") for n in (1, 2)]
    for source, target in pairwise([str(out), *names]):
        traceconv.convert(source, target)
    assert Path(names[0]).read_bytes() == Path(names[1]).read_bytes()
    traceconv.convert(str(out), str(tmp_path / "chrome.json"))
    usual, _ = sampled.merged("json", "detail")
    found, expected = (json.loads(one.read_bytes()) for one in (tmp_path / "chrome.json", usual))
    assert found["traceEvents"] == expected["traceEvents"]


def facts(report, rank):
    """What a report knows of a rank beside its rows."""
    known = report.found[rank]
    capture = known.capture
    return (
        *(capture.host, capture.device, capture.pid, capture.world_size),
        *(known.hints, known.notes, known.windows.tolist(), known.counts, known.span),
    )


FOUND_AGAIN = {"nested-deep", "steps-uncovered"}
"""Issues of what the rows are: whoever reads the rows finds them."""


def losses(issues):
    """What was lost or is in doubt, as far as a file has to say it."""
    return {
        (issue.code, issue.rank, issue.count)
        for issue in issues
        if issue.severity is not Severity.INFO
        and issue.code not in (*FOUND_AGAIN, "unaligned")  # convert aligns nothing
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["summary", "detail"])
def test_perfetto_merges_again_the_same(sampled, mode, tmp_path):
    """A merge of an output of ours is the merge of what it was made of: rows, steps, overlap."""
    out, _ = sampled.merged("pftrace", "detail")
    text, first = sampled.merged("txt", mode)
    options = {key: sampled.options[key] for key in ("args", "free_rule") if key in sampled.options}
    again = str(tmp_path / "again.txt")
    second = traceconv.merge(str(out), out=again, mode=mode, scope=True, **options)
    assert body(Path(again).read_text()) == body(text.read_text())
    for rank in first.ranks:
        one, two = first.found[rank], second.found[rank]
        if (one.steps.covered == Covered.VENDOR_TABLE).any():
            continue  # the vendor's own table is not in the output
        assert {name: column.tolist() for name, column in one.steps.columns().items()} == {
            name: column.tolist() for name, column in two.steps.columns().items()
        }
        assert overlap_of(one) == overlap_of(two)


@pytest.mark.sample(2)
def test_parts_of_perfetto_are_one_again(sampled, tmp_path):
    """A file of ours that is split has all of its rows again when the parts are read, in order;
    arrows between the parts are lost, and counted."""
    whole, _ = sampled.merged("pftrace", "detail")
    parts = tmp_path / "parts"
    parts.mkdir()
    size = whole.stat().st_size * 3 // 4
    try:
        report = traceconv.merge(
            str(whole), out=str(parts / "t.pftrace"), mode="source", limit=size, over_limit="split"
        )
    except TraceconvError:
        pytest.skip("too small to be split")
    rows, arrows = [], []
    for out, again in (source_text(whole), source_text(parts)):
        lines = body(out).splitlines()
        rows.append([line for line in lines if " -> " not in line and line != "  arrows"])
        arrows.append(Counter(line for line in lines if " -> " in line))
        assert again.issues.count("part-missing") == 0
    assert rows[0] == rows[1]
    assert not arrows[1] - arrows[0]
    stated = sampled.merged("pftrace", "detail")[1].issues.count("flow-split")  # of input in parts
    lost = report.issues.count("flow-split") - stated
    assert (arrows[0] - arrows[1]).total() == lost


@lru_cache(maxsize=2)
def source_text(place):
    """The text of a file of ours or of its parts, as it is, and the report of making it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.txt")
        report = traceconv.merge(str(place), out=str(out), mode="source")
        return out.read_text(encoding="utf-8"), report


@pytest.mark.sample(3)
def test_an_output_is_reduced_like_an_input(sampled, tmp_path):
    """A file of ours, read again under a smaller limit: it is kept, the file is valid, and the rows
    that are gone are those of the ledger."""
    whole, _ = sampled.merged("pftrace", "detail")
    size, out = whole.stat().st_size * 3 // 4, tmp_path / "reduced.pftrace"
    try:
        report = traceconv.merge(str(whole), out=str(out), mode="source", limit=size)
    except TraceconvError as e:
        pytest.skip(f"cannot be reduced: {e}")
    assert out.stat().st_size <= size
    assert checks.validate(out).ok
    [written], [all_rows] = report.written, source_text(whole)[1].written
    gone = sum(all_rows.counts.values()) - sum(written.counts.values())
    stand_ins = source_text(out)[0].count(" small slices)")
    assert gone == sum(one["rows"] for one in report.dropped) - stand_ins


def overlap_of(account):
    known = account.overlap
    return known and (known.free_rule, known.spans, known.sums_ns, known.idle_ns)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", ["summary", "detail"])
@pytest.mark.parametrize("ending", ["pftrace", "json"])
def test_outputs_are_valid(sampled, mode, ending):
    """Every packet parses, every reference resolves, every track nests."""
    verdict = checks.validate(str(sampled.merged(ending, mode)[0]))
    assert (verdict.ok, list(verdict.findings)) == (True, [])


def test_shift_and_back_is_identity(sampled):
    """Moving a trace by a day and back changes nothing."""
    for trace in usual_traces(sampled)[1]:
        back = align.shift(align.shift(trace, DAY_NS), -DAY_NS)
        assert back.events.start_ns.tolist() == trace.events.start_ns.tolist()
        assert back.counters.start_ns.tolist() == trace.counters.start_ns.tolist()


@pytest.mark.sample(3)
def test_ranks_together_are_ranks_apart(sampled, tmp_path):
    """A rank looks the same in a merge of many as in one of its own."""
    ranks = [c.rank for c in captures(sampled).found]
    if len(ranks) == 1:  # it is aligned to nothing but its own stamps
        clock, together = {}, sampled.usual_text("detail")
    else:
        clock = {"align": "none"}
        together = sampled.text(tmp_path, "detail", **clock)
    base = base_of(together)
    for rank in ranks:
        alone = sampled.text(tmp_path, "detail", **clock, ranks=[rank])
        assert times_plus(section(alone, rank), base_of(alone) - base) == section(together, rank)


def base_of(text):
    return int(text.splitlines()[1].removeprefix("base_ns "))


def section(text, rank):
    after = text.partition(f"\nrank {rank}\n")[2]
    return after.partition("\n\nrank ")[0].rstrip("\n")


def times_plus(text, offset):
    """A section of the text dump with every time moved by ``offset``."""
    text = re.sub(r"(?m)^    (-?\d+)(?= [+!=])", lambda m: f"    {int(m[1]) + offset}", text)
    return re.sub(r"@(-?\d+)", lambda m: f"@{int(m[1]) + offset}", text)


def test_accounts_are_closed(sampled):
    """For every kind, what all stages booked adds up to what is there."""
    for trace in usual_traces(sampled)[1]:
        booked = dict.fromkeys(trace.counts(), 0)
        for (_, kind), rows in trace.ledger.items():
            booked[kind] += rows
        assert booked == trace.counts()


@pytest.mark.sample(2)
def test_gzipped_input_is_the_same_input(sampled, tmp_path, monkeypatch):
    """Compression is found by content; names keep their endings."""
    files = event_files(sampled)
    shutil.copytree("input", tmp_path / "packed" / "input")
    for path in (tmp_path / "packed" / file for file in files):
        path.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.chdir(tmp_path / "packed")
    assert body(sampled.text(tmp_path, "detail")) == body(sampled.usual_text("detail"))


def test_errors_are_ours(bad, tmp_path):
    """Whatever is wrong with an input is reported by a TraceconvError that names the input."""
    with pytest.raises(TraceconvError, match="input"):
        bad.merge(tmp_path / "out.txt", "detail")


EVERY_READER = """
import hashlib, sys, tempfile, traceconv
from pathlib import Path
with tempfile.TemporaryDirectory() as place:
    for given in sys.argv[1:]:
        out = Path(place, "out.pftrace")
        try:
            traceconv.merge(given, out=str(out), mode="detail", force=True, jobs=1)
        except traceconv.TraceconvError:
            continue
        print(given, hashlib.sha256(out.read_bytes()).hexdigest())
"""


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*"))


def test_outputs_do_not_depend_on_the_seed_of_hashes():
    """Sets of texts have another order in every process; found by comparing two of them, with the
    largest inputs of every reader."""
    cases = [case for case in CASES if not case.error and case.reader != "ascend_raw"]
    cases.sort(key=lambda case: (case.reader, -size_of(case.folder / "input")))
    some = [
        str(case_folder(case.folder) / "input")
        for _, of_reader in groupby(cases, key=lambda case: case.reader)
        for case in islice(of_reader, effort(2, 99))
    ]
    found = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", EVERY_READER, *some]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        found.append(done.stdout.splitlines())
    assert [a for a, b in zip(*found, strict=True) if a != b] == []
    assert len(found[0]) > effort(20, 50)
