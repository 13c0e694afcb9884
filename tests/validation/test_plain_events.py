"""Packets read many at once: the same as one by one, whatever is among them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from trace_bytes import (
    HEAD,
    Fixed,
    begin,
    clock,
    end,
    event,
    interned,
    msg,
    packet,
    snapshot,
    track,
    written,
)

from traceconv import native
from traceconv.core.errors import TraceconvError
from traceconv.validation import decode, validate
from traceconv.validation.perfetto import packets

pytestmark = pytest.mark.skipif(native.wire() is None, reason="without the C part there is one way")

STREAM, LOAD = 5, 6
TEXTS = (interned(3, 1, "size")[1], interned(29, 1, "text")[1])
ARGUMENTS = (
    msg((1, 1), (4, 7)),
    msg((10, "deep"), (11, msg((1, 1), (17, 1)))),
    msg((10, "whole"), (5, 0.25)),
    msg((1, 1), (6, "größer")),
)


def _trace(*odd: bytes) -> bytes:
    """Slices with flows and arguments, samples among them, and what is ``odd`` in between."""
    parts = [HEAD, track(STREAM, (2, "Stream"), (5, 1)), track(LOAD, (2, "Load"), (8, b""))]
    parts += [packet((10, 1), (13, 2), (12, text)) for text in TEXTS]
    for i in range(200):
        flows = [(47 + i % 2, Fixed(i // 2 + 1))] if i % 3 else []
        arguments = [(4, one) for one in ARGUMENTS[: i % 5]]
        parts.append(begin(10 * i + 1, f"op {i % 7}", STREAM, *flows, *arguments))
        parts.append(event(10 * i + 2, 4, LOAD, (30, i)))
        parts.append(end(10 * i + 9, STREAM))
        if i % 40 == 20:
            parts.append(odd[(i // 40) % len(odd)] if odd else b"")
    return b"".join(parts)


def _said(path: Path) -> tuple[Any, ...]:
    """All of a trace as the importer shows it, and what is wrong with it."""
    try:
        verdict, found = validate(path), decode(path)
    except TraceconvError as e:
        return type(e), str(e)
    if verdict.refused:
        return verdict.as_dict(), found
    rows = found.rows
    columns = (rows.ts, rows.dur, rows.depth, rows.track_id, rows.label, found.instant)
    columns += (found.flows.source, found.flows.target)
    columns += (found.counters.ts, found.counters.value, found.counters.track_id)
    arguments = [rows.arguments(i) for i in range(len(rows))]
    listed = [column.tolist() for column in columns]
    return verdict.as_dict(), listed, list(rows.labels), list(found.tracks), arguments


def _both(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[Any, ...], tuple[Any, ...], int]:
    """What is said of a file one by one, then in bulk, and how many runs were read so."""
    taken: list[bool] = []
    plain = packets._Reader._plain

    def counted(self: Any, *args: Any) -> bool:
        taken.append(plain(self, *args))
        return taken[-1]

    monkeypatch.setattr(packets._Reader, "_plain", counted)
    monkeypatch.setattr(packets, "_FEW", 1)
    said = []
    for tier in "01":
        monkeypatch.setenv("TRACECONV_NATIVE", tier)
        said.append(_said(path))
    return said[0], said[1], sum(taken)


ODD = {
    "nothing": b"",
    "an event without a name": event(815, 1, STREAM),
    "an end that names its slice": end(815, STREAM, (23, "op 1")),
    "an argument that is not defined": begin(815, "x", STREAM, (4, msg((1, 77), (4, 1)))),
    "an argument without a name": begin(815, "x", STREAM, (4, msg((4, 1)))),
    "an argument that is no number": begin(815, "x", STREAM, (4, msg((1, 1), (5, float("nan"))))),
    "two numbers, the first of them none": begin(
        815, "x", STREAM, (4, msg((1, 1), (5, float("inf")), (5, 1.0)))
    ),
    "a text that is not UTF-8": begin(815, "x", STREAM, (4, msg((1, 1), (6, b"\xff")))),
    "a name that is not UTF-8": event(815, 1, STREAM, (23, b"\xfe")),
    "a track nobody described": begin(815, "x", 99) + end(816, 99),
    "state that is lost": packet((10, 1), (42, 1)),
    "state that is cleared": packet((10, 1), (13, 1)),
    "a clock that starts elsewhere": snapshot(clock(6, 0), clock(64, 5000)),
    "another clock by default": packet((10, 1), (13, 1), (59, msg((58, 64)))),
    "flows in one field": begin(815, "x", STREAM, (47, bytes(16))),
    "packets compressed": packet((50, b"no")),
    "a broken event": packet((8, 815), (10, 1), (13, 2), (11, b"\x48")),
    "an empty packet": b"\x0a\x00",
    "a size in more bytes than needed": b"\x0a\x82\x00\x50\x01",
    "a cut end": b"\x0a\x70\x50\x01",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_is_read_in_bulk_is_what_is_read_one_by_one(
    odd: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices, samples, arrows, arguments, and every rule that is broken."""
    one, many, runs = _both(written(tmp_path, _trace(odd)), monkeypatch)
    assert repr(one) == repr(many)
    assert runs


def test_damage_is_judged_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes changed, lost and doubled anywhere."""
    rng, runs = random.Random(11), 0
    for _ in range(60):
        content = bytearray(_trace())
        for _ in range(rng.choice((1, 2, 9))):
            at = rng.randrange(len(content))
            until = at + rng.randrange(40)
            content[at:until] = rng.choice((b"", content[at:until] * 2, bytes([content[at] ^ 8])))
        one, many, more = _both(written(tmp_path, bytes(content)), monkeypatch)
        assert repr(one) == repr(many)
        runs += more
    assert runs > 30
