"""Members of arguments: what the C part finds is what Python finds, whatever the arguments are."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from traceconv import native
from traceconv.analysis.tables.fields import fields
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer
from traceconv.io.sources import FileSource

KEYS = ("Op Type", "type")

OBJECTS = [
    b"{}",
    b'{"Op Type": "MatMul", "type": 3}',
    b'{"type":null,"Op Type":[1, {"type": "inner"}]}',
    b'{ "type" : "first" , "type" : "last" }',
    b'{"t\\u0079pe": "escaped key", "Op Type": "x"}',
    b'{"type": "sur\\ud800rogate", "Op Type": "\\u00e9"}',
    '{"größe": "breit", "type": "ü"}'.encode(),
    b'{"a\\"b": 1.50, "type": -0.0}',
    b'{"type": NaN}',
    b'{"type": 1',
    b'{"type": "bad \xff"}',
    b'{"type": 1} ',
    b'["type"]',
    b'"type"',
    b'{"other": "type"}',
    b'{"type": ' + b"[" * 70 + b"]" * 70 + b"}",
]


def _both(tmp_path, monkeypatch, raws, *more):
    """The columns of events with these arguments (None for none), one by one and many at once."""
    build = TraceBuilder(Capture("test", FileSource(Path(tmp_path), "x"), ("x",), rank=0))
    track = build.track(Layer.RUNTIME, "Thread 1", thread=1)
    for i in range(len(raws)):
        build.slice(track, 10 * i, 5, "op")
    trace = build.finish()
    args, first = trace.args.extended([raw or b"" for raw in raws])
    ids = np.array([-1 if raw is None else first + i for i, raw in enumerate(raws)], np.int32)
    trace = trace.evolve("test", args=args, events=trace.events.with_columns(args=ids))
    rows = np.arange(len(trace.events))[::-1]
    found = []
    for tier in "01":
        monkeypatch.setenv("TRACECONV_NATIVE", tier)
        found.append([column.tolist() for column in fields(trace, rows, *KEYS, *more)])
    return found


@pytest.mark.skipif(native.members() is None, reason="not built")
def test_members_are_the_same_either_way(tmp_path, monkeypatch):
    """Doubled and escaped keys, other alphabets, what is no object or no JSON, no arguments."""
    for more in ((), ("größe",)):
        one, many = _both(tmp_path, monkeypatch, [*OBJECTS, None, *OBJECTS], *more)
        assert one == many
        found = {text for column in many for text in column}
        assert {"MatMul", "3", "last", "escaped key", *(["breit"] if more else [])} <= found


def test_any_number_of_members_is_read(tmp_path, monkeypatch):
    """Twenty keys at once, with and without the C part."""
    keys = [f"key{number}" for number in range(20)]
    raw = msgspec.json.encode({key: number for number, key in enumerate(keys)})
    for columns in _both(tmp_path, monkeypatch, [raw], *keys):
        assert [text for (text,) in columns[len(KEYS) :]] == [str(number) for number in range(20)]
