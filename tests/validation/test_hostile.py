"""The checks on damaged traces, and on traces read in pieces."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_bytes import (
    COUNTER,
    HEAD,
    Fixed,
    begin,
    end,
    event,
    flow,
    interned,
    msg,
    packet,
    written,
    x,
)

from traceconv.core.errors import TraceconvError
from traceconv.validation import validate


def mixed_perfetto() -> bytes:
    """Repeated and unique packets, with and without arguments, flows and samples."""
    parts = [HEAD, COUNTER, packet((10, 1), interned(3, 1, "n"))]
    for n in range(40):
        number = (4, msg((1, 1), (4, n)))
        parts.append(begin(n * 100, f"k{n % 3}", 1, *([number] if n % 2 else [])))
        parts.append(begin(n * 100 + 5, "inner", 1, (47, Fixed(n // 2 + 1))))
        parts.append(end(n * 100 + 9) + end(n * 100 + 50))
        parts.append(event(n * 100, 4, 2, (30, n)))
    return b"".join(parts)


def mixed_json() -> bytes:
    events = [x(f"é{n % 3}", ts=n * 20.5, args={"n": n, "s": '\\"}{'}) for n in range(40)]
    links = [flow("s" if n % 2 else "f", n * 20.5 + 1, id=n // 2, bp="e") for n in range(2, 40)]
    text = json.dumps({"a": [1, {"b": 2}], "traceEvents": events + links, "metadata": {"k": "v"}})
    return text.replace("}, {", "} ,\n {").encode()


def judged(path: Path) -> None:
    """A verdict; errors of ours are fine."""
    with suppress(TraceconvError):
        validate(path)


@settings(max_examples=effort(60, 150), deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(mixed_perfetto())))
def test_damaged_packets_end_in_a_verdict(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    """Noise anywhere in a Perfetto trace is judged, or refused by name."""
    whole = mixed_perfetto()
    path = tmp_path_factory.getbasetemp() / "noise.pftrace"
    path.write_bytes(b"\n" + whole[1:at] + noise + whole[at + len(noise) :])
    judged(path)


@settings(max_examples=effort(60, 150), deadline=None)
@given(st.text(alphabet='{}[]",:\\eE+-.019ntu \x00é', max_size=40), st.integers(0, 6000))
def test_damaged_text_ends_in_a_verdict(
    tmp_path_factory: pytest.TempPathFactory, noise: str, at: int
) -> None:
    """Noise anywhere in a Chrome JSON trace is judged, or refused by name."""
    whole = mixed_json()
    path = tmp_path_factory.getbasetemp() / "noise.json"
    path.write_bytes(whole[:at] + noise.encode() + whole[at:])
    judged(path)


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_deep_nesting_is_no_crash(opening: str, tmp_path: Path) -> None:
    """Arguments nested thousands deep are refused."""
    depth = 100_000  # beyond what any supported Python decodes
    deep = opening * depth + "1" + ("}" if opening != "[" else "]") * depth
    text = f'[{{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{{"d":{deep}}}}}]'
    assert not validate(written(tmp_path, text.encode())).ok


def test_deep_annotations_are_no_crash(tmp_path: Path) -> None:
    """Annotations nested thousands deep are judged; the slice stays."""
    nested = msg((10, "x"), (4, 1))
    for _ in range(3000):
        nested = msg((10, "d"), (11, nested))
    path = written(tmp_path, HEAD + begin(0, "A", 1, (4, nested)) + end(9))
    assert validate(path).counts["slices"] == 1


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    """A broken compressed file is refused, wherever in it the damage is."""
    whole = gzip.compress(mixed_perfetto())
    for at in range(20, len(whole) - 8, 97):
        path = written(tmp_path, whole[:at] + bytes(b ^ 0xFF for b in whole[at : at + 9]))
        assert validate(path).refused
