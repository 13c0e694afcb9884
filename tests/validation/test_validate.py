"""The verdict on a trace: every rule has a trace that breaks it, and good ones break none."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from trace_bytes import (
    COUNTER,
    GOOD,
    GOOD_JSON,
    HEAD,
    INCREMENTAL,
    LANE,
    SLICE,
    START,
    Fixed,
    annotated,
    archive,
    attribute,
    begin,
    clock,
    delta,
    end,
    event,
    field,
    flow,
    interned,
    manifest,
    mark,
    msg,
    packet,
    process,
    snapshot,
    thread,
    track,
    without,
    written,
    x,
)

import traceconv
from traceconv.core.errors import (
    MissingExtraError,
    SourceError,
    UnknownFormatError,
)
from traceconv.readers.perfetto import packets as _packets
from traceconv.validation import (
    RULES,
    Severity,
    ValidationReport,
    validate,
)

PERFETTO: dict[str, bytes] = {
    "P01-packet: other bytes": HEAD + SLICE + b"\x12\x00",
    "P01-packet": HEAD + field(1, b"\x08\xff"),
    "F-cut: packet": (HEAD + SLICE)[:-3],
    "P01-message": HEAD + packet((8, 1), (10, 1), (11, b"\x48")),
    "P02-event": LANE + packet((8, 1), (11, msg((9, 1), (11, 1)))),
    "P02-state: interned": packet(interned(2, 1, "x")),
    "P02-state: defaults": packet((59, msg((58, 6)))),
    "P02-state: cleared": packet((13, 1)),
    "P02-state: dropped": packet((42, 1)),
    "P02-needs": packet((13, 2)),
    "P03-uncleared: packet": LANE + SLICE,
    "P03-uncleared: interned": packet((10, 1), interned(2, 1, "x")),
    "P03-loss": START + packet((10, 1), (42, 1)),
    "P04-id: name": HEAD + event(1000, 1, 1, (10, 7)) + end(1010),
    "P04-id: category": HEAD + begin(1000, "A", 1, (3, 9)) + end(1010),
    "P04-id: argument": annotated((1, 5), (4, 1)),
    "P04-id: zero": packet((10, 1), (13, 1), interned(2, 0, "x")),
    "P05-redefined": packet((10, 1), (13, 1), interned(2, 1, "x"))
    + packet((10, 1), interned(2, 1, "y")),
    "P22-value: text": HEAD + event(1000, 3, 1, (23, b"\xff")),
    "P22-value: no name": annotated((4, 1)),
    "P22-value: number": annotated((10, "x"), (5, float("nan"))),
    "P23-compressed: codec": packet((50, b"neither zlib nor gzip")),
    "P23-compressed: content": packet((50, zlib.compress(b"\x12\x01\x00\x00"))),
    "P23-compressed: both": packet((50, zlib.compress(HEAD))) + packet((133, b"\x28\xb5\x2f\xfd")),
    "P06-timestamp": HEAD + packet((10, 1), (13, 2), (11, msg((9, 1), (11, 1)))),
    "P07-negative": HEAD + begin(1 << 63),
    "P07-negative: packet": START + packet((8, 1 << 63), (10, 1)),
    "P07-delta": LANE
    + INCREMENTAL
    + snapshot(clock(6, 1000), clock(64, 0, (3, 1)))
    + delta(100, 1)
    + delta(-50, 2),
    "P08-clock": LANE + INCREMENTAL + delta(1, 1),
    "P08-lost": LANE + INCREMENTAL + delta(1, 1),
    "P08-clock: target": HEAD + snapshot(clock(1, 5), (2, 3)) + packet((8, 1), (10, 1), (58, 1)),
    "P08-clock: path": HEAD
    + snapshot(clock(3, 5), (2, 3))
    + snapshot(clock(1, 5))
    + packet((8, 1), (10, 1), (58, 1)),
    "P08-domains": HEAD + snapshot(clock(1, 5), (2, 1)) + packet((8, 1), (10, 1), (58, 1)),
    "P08-snapshot": HEAD + snapshot(clock(1, 5), clock(1, 6)),
    "P02-needs: clock": packet((8, 1), (58, 64)),
    "P09-type": HEAD + event(1000, 9, 1),
    "P09-legacy": HEAD + event(1000, 1, 1, (6, msg((2, 66)))),
    "P10-descriptor: uuid": packet((60, msg((2, "nameless")))),
    "P10-descriptor: root": track(0, (5, 3)),
    "P10-descriptor: ordering": track(5, (11, 9)),
    "P10-descriptor: process": track(5, (3, b"")),
    "P10-descriptor: thread": track(5, (4, msg((1, 7)))),
    "P11-zero": process(5, 0, "Rank 0"),
    "P12-conflict": LANE + track(1, (8, b"")),
    "P12-name": LANE + track(1, (2, "other")),
    "P13-twice: process": process(5, 7) + process(6, 7),
    "P13-twice: thread": thread(5, 7, 8) + thread(6, 7, 8),
    "P14-parent": START + track(1, (2, "x"), (5, 99)) + SLICE,
    "P14-loop": START + track(1, (2, "x"), (5, 2)) + track(2, (2, "y"), (5, 1)) + SLICE,
    "P14-loop: depth": START
    + b"".join(track(n, (2, "x"), (5, n + 1)) for n in range(1, 150))
    + SLICE,
    "P15-track": START + SLICE,
    "P16-end": HEAD + end(1000),
    "P16-open": HEAD + begin(1000),
    "P16-depth": HEAD
    + b"".join(begin(n) for n in range(513))
    + b"".join(end(1000 + n) for n in range(513)),
    "P17-crossing": HEAD + begin(0, "A") + begin(5, "B") + end(10, 1, (23, "A")) + end(15),
    "P17-misplaced": HEAD + begin(0, "A") + begin(5, "B") + end(10, 1, (23, "A")) + end(15),
    "P18-counter: track": HEAD + event(1000, 4, 1, (30, 5)),
    "P18-counter: value": START + COUNTER + event(1000, 4, 2),
    "P18-counter: uuid": START + packet((8, 1), (10, 1), (11, msg((9, 4), (30, 5)))),
    "P18-slice": START + COUNTER + begin(1000, "A", 2) + end(1010, 2),
    "P18-counter: state": START + packet((8, 1), (10, 1), (11, msg((9, 5)))),
    "P18-counter: extra uuids": HEAD + begin(1000, "A", 1, (12, 5)),
    "P18-counter: extra mismatch": HEAD + COUNTER + begin(1000, "A", 1, (12, 5), (12, 6), (31, 2)),
    "P18-counter: extra many": HEAD
    + COUNTER
    + begin(1000, "A", 1, *((12, n) for n in range(9)), *((31, 2) for _ in range(9))),
    "P18-counter: extra track": HEAD + begin(1000, "A", 1, (12, 5), (31, 1)),
    "P20-unbound: once": HEAD + begin(1000, "A", 1, (47, Fixed(5))) + end(1010),
    "P20-unbound: unopened": HEAD + begin(1000, "A", 1, (48, Fixed(5))) + end(1010),
    "P24-counts": HEAD + SLICE + attribute("traceconv.counts", '{"slice": 2, "flow": 0}'),
}


JSON: dict[str, bytes | list[dict[str, Any]]] = {
    "J16-syntax: bom": b"\xef\xbb\xbf" + b'[{"ph":"X"}]',
    "J16-syntax": b'[{"ph":"X",}, nonsense]',
    "J16-syntax: surrogate": b'[{"ph":"X","name":"\\ud83d\\ude00","pid":1,"tid":1,"ts":1,"dur":1}]',
    "J16-syntax: truncated": b'{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1},',
    "F-cut: json": b'[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"du',
    "J16-control": b'[{"ph":"X","name":"a\tb","pid":1,"tid":1,"ts":1,"dur":1}]',
    "P22-value: json": b'[{"ph":"X","name":"a\xff","pid":1,"tid":1,"ts":1,"dur":1}]',
    "J16-id: huge": [x(pid=10**400)],
    "J16-id: flow": [x(), flow("s", 2, id=2**53 + 2), flow("f", 5, id=2**53 + 2, bp="e")],
    "J16-event: phase": [without(x(), "ph")],
    "J16-event: unknown phase": [x(ph="O")],
    "J16-event: time": [without(x(), "ts")],
    "J16-event: duration type": [x(dur="long")],
    "J16-event: duration": [without(x(), "dur")],
    "J16-event: negative duration": [x(dur=-1)],
    "P07-negative: json": [x(ts=-5)],
    "J16-ts-grid": b'[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1727000000000000.123,"dur":1}]',
    "J16-overlap": [x(), x("B", ts=5)],
    "J16-id: pid": [x(pid=-1)],
    "P11-zero: json": [x(pid=0, tid=5)],
    "J16-args": b'[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{"x":NaN}}]',
    "J16-number": [x(args={"x": 1 << 64})],
    "J16-event: counter": [{"ph": "C", "name": "m", "pid": 1, "ts": 1, "args": {"x": "much"}}],
    "J16-event: async": [{"ph": "b", "name": "a", "pid": 1, "ts": 1}],
    "J16-event: instant": [{"ph": "i", "name": "a", "pid": 1, "ts": 1}],
    "J16-event: state": [without(x(ph="T"), "dur")],
    "J16-event: metadata": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": 5}}],
    "J16-event: id2": b'[{"ph":"b","name":"a","pid":1,"ts":1,"id2":{"local":NaN}}]',
    "P16-end: json": [mark("E", 5)],
    "P16-open: json": [mark("B", 5)],
    "P16-depth: json": [mark("B", n) for n in range(513)]
    + [mark("E", 600 + n) for n in range(512)],
    "P17-crossing: json": [mark("B", 0), mark("B", 5, "B"), mark("E", 10), mark("E", 15, "B")],
    "P17-misplaced: json": [mark("B", 0), mark("B", 5, "B"), mark("E", 10), mark("E", 15, "B")],
    "J16-flow: id": [x(), flow("s", 2, id="no hex")],
    "J16-flow: slice": [flow("s", 2)],
    "J16-flow: twice": [x(), flow("s", 2), flow("s", 3)],
    "J16-flow: direction": [x(bind_id=5)],
    "P20-unbound: step": [x(), flow("t", 2)],
    "P20-unbound: end": [x(), flow("f", 2, bp="e")],
    "P20-unbound: start": [x(), flow("s", 2)],
    "P20-unbound: pending": [x(), flow("s", 2), flow("f", 5)],
}


TIED = {"path": "a", "clocks": {"sync_to": {"file": "a"}, "offset_ns": 1}}
FILES: dict[str, bytes] = {
    "F-compression": gzip.compress(GOOD)[:-9],
    "F-member": archive({"a.pftrace": GOOD, "README": b"no trace"}),
    "F-manifest": archive({"a": GOOD, "m.json": manifest(TIED)}),
    "F-absent": archive({"a": GOOD, "m.json": manifest({"path": "b"})}),
    "F-member: none": archive({"m.json": manifest()}),
}


def verdict_on(tmp_path: Path, content: bytes | list[dict[str, Any]]) -> ValidationReport:
    return validate(written(tmp_path, content))


CASES = {**PERFETTO, **JSON, **FILES}
"""By rule, and what breaks it where there are several ways."""


def rule_of(case: str) -> str:
    return case.partition(":")[0]


def rules_of(verdict: ValidationReport) -> set[str]:
    return {finding.rule for finding in verdict.findings}


# -- rules ----------------------------------------------------------------------------------------


def test_every_rule_has_a_case() -> None:
    """No rule is without a trace that breaks it."""
    importer = {rule for rule in RULES if rule.startswith("D-")}  # see test_processor
    assert set(RULES) - importer == {rule_of(case) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_rule_is_found(case: str, tmp_path: Path) -> None:
    """The trace made to break a rule gets that finding, with its severity and sentence."""
    rule = rule_of(case)
    verdict = verdict_on(tmp_path, CASES[case])
    (finding,) = (f for f in verdict.findings if f.rule == rule)
    assert (RULES[rule].severity, RULES[rule].sentence) == (finding.severity, finding.sentence)
    assert finding.count >= 1


@pytest.mark.parametrize("case", CASES)
def test_a_verdict_is_ok_unless_something_is_lost_or_wrong(case: str, tmp_path: Path) -> None:
    """Errors, losses and silent faults make a verdict bad; notices and infos do not."""
    verdict = verdict_on(tmp_path, CASES[case])
    bad = {Severity.ERROR, Severity.LOSS, Severity.SILENT}
    assert verdict.ok == (not any(f.severity in bad for f in verdict.findings))
    if RULES[rule_of(case)].severity in bad:
        assert not verdict.ok


@pytest.mark.parametrize(
    "content",
    [GOOD, GOOD_JSON, gzip.compress(GOOD), archive({"a": GOOD})],
    ids=["perfetto", "json", "gzip", "archive"],
)
def test_a_good_trace_breaks_no_rule(content: bytes, tmp_path: Path) -> None:
    """Plain, compressed and archived traces without fault get no finding at all."""
    verdict = verdict_on(tmp_path, content)
    assert verdict.findings == ()
    assert verdict.ok


def test_places_say_where(tmp_path: Path) -> None:
    """A finding names the first few places, not all of them."""
    ends = b"".join(packet((8, 1), (11, msg((9, 1)))) for _ in range(9))
    (finding,) = verdict_on(tmp_path, ends).findings
    assert (finding.count, len(finding.places)) == (9, 5)
    assert finding.places[0] == "byte 2"


def test_a_verdict_as_json(tmp_path: Path) -> None:
    """The JSON form has the path, the judgement, the counts and the findings."""
    path = written(tmp_path, PERFETTO["P16-end"])
    document = json.loads(json.dumps(validate(path).as_dict()))
    assert {
        "path": str(path),
        "format": "perfetto",
        "ok": False,
        "refused": False,
        "counts": {
            "slices": 0,
            "instants": 0,
            "counters": 0,
            "flows": 0,
            "tracks": 1,
            "bytes": path.stat().st_size,
        },
        "importer": None,
        "findings": [
            {
                "rule": "P16-end",
                "severity": "silent",
                "count": 1,
                "places": ["track 1 at 1000"],
                "sentence": RULES["P16-end"].sentence,
            }
        ],
    } == document


def test_recorded_counts_that_agree(tmp_path: Path) -> None:
    """Counts in the metadata that equal what is there are no finding, in either format."""
    counts = {"slice": 1, "instant": 0, "counter": 0, "flow": 0}
    perfetto = GOOD + attribute("traceconv.counts", json.dumps(counts))
    chrome = {"traceEvents": [x()], "metadata": {"traceconv": {"counts": counts}}}
    assert verdict_on(tmp_path, perfetto).findings == ()
    assert verdict_on(tmp_path, json.dumps(chrome).encode()).findings == ()


def test_recorded_counts_of_chrome_json(tmp_path: Path) -> None:
    """Counts in the metadata of Chrome JSON are held against the file as well."""
    chrome = {"traceEvents": [x()], "metadata": {"traceconv": {"counts": {"slice": 3}}}}
    (finding,) = verdict_on(tmp_path, json.dumps(chrome).encode()).findings
    assert (finding.rule, finding.places) == ("P24-counts", ("slice: 3 written, 1 found",))


# -- what cannot be judged ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"{}", b"[]", b"\x00\x00", b'{"schema_version": 1, "ranks": [0], "issues": []}'],
)
def test_no_trace_is_an_unknown_format(content: bytes, tmp_path: Path) -> None:
    """What viewers do not recognise is not judged."""
    with pytest.raises(UnknownFormatError):
        verdict_on(tmp_path, content)


def test_a_missing_file_and_a_folder_are_source_errors(tmp_path: Path) -> None:
    """Only one readable file can be judged."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(SourceError):
            validate(path)


def test_zstd_without_a_decompressor_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the package that is missing."""
    from traceconv.io import streams as _streams

    def nothing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(_streams.importlib, "import_module", nothing)
    for content in (b"\x28\xb5\x2f\xfd\x00", packet((133, b"\x28\xb5\x2f\xfd"))):
        with pytest.raises(MissingExtraError, match="pip install zstandard"):
            verdict_on(tmp_path, content)


def test_a_packet_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed packet is unpacked to a bound only."""
    monkeypatch.setattr(_packets, "PACKET_BYTES", 1000)
    verdict = verdict_on(tmp_path, packet((50, zlib.compress(bytes(10_000_000)))))
    assert {"P23-compressed"} == rules_of(verdict)


def test_many_packets_that_unpack_to_too_much_are_a_bomb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All compressed packets together are bounded as well."""
    monkeypatch.setattr(_packets, "RATIO_FREE_BYTES", 1000)
    monkeypatch.setattr(_packets, "RATIO_LIMIT", 2)
    zeros = packet((50, zlib.compress(b"\x0a\x00" * 100_000)))
    monkeypatch.setattr(_packets, "PACKET_BYTES", 1 << 20)
    with pytest.raises(SourceError, match="decompression bomb"):
        verdict_on(tmp_path, zeros * 3)


@pytest.mark.parametrize("name", ["t.pftrace", "t.json", "t.json.gz", "t.tar"])
def test_progress_adds_up(tmp_path: Path, name: str) -> None:
    """Every stored byte is told once."""
    done: list[int] = []
    told: set[tuple[int, str]] = set()

    def progress(n: int, total: int, label: str) -> None:
        assert n >= 0
        done.append(n)
        told.add((total, label))

    sample = ROOT / "golden" / "trace_view" / "demo" / "input"
    path = tmp_path / name
    traceconv.merge(str(sample), out=str(path), mode="detail")
    assert validate(path, progress) == validate(path)
    ((total, label),) = told
    assert (sum(done), label) == (total, f"checking {name}")
    assert total >= path.stat().st_size * 0.9


def test_text_that_looks_like_a_number_that_is_not_finite(tmp_path):
    """Arguments that are not JSON are kept as text, whatever the text holds."""
    path = tmp_path / "in.json"
    args = '{"n"s":{"n":1,"x":NaN}}'
    path.write_text(f'[{{"name":"a","ph":"X","pid":1,"tid":1,"ts":1,"dur":3,"args":{args}}}]')
    out = str(tmp_path / "out.pftrace")
    traceconv.merge(str(path), out=out, mode="detail")
    assert not traceconv.validate(out).findings
