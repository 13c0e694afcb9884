"""Traces of a few bytes: protobuf and Chrome JSON by hand, as small as it gets."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any


class Fixed(int):
    """An integer written as fixed64."""


Value = int | float | str | bytes


def content(path: Path) -> bytes:
    """Of a trace that was written, unpacked: how it is packed is up to the library that does it."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def field(number: int, value: Value) -> bytes:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, Fixed):
        return varint(number << 3 | 1) + struct.pack("<Q", value)
    return varint(number << 3) + varint(value)


def msg(*fields: tuple[int, Value]) -> bytes:
    return b"".join(field(n, v) for n, v in fields)


def packet(*fields: tuple[int, Value]) -> bytes:
    return field(1, msg(*fields))


START = packet((10, 1), (13, 1))


def track(uuid: int, *fields: tuple[int, Value]) -> bytes:
    return packet((60, msg((1, uuid), *fields)))


def thread(uuid: int, pid: int, tid: int, name: str = "") -> bytes:
    return track(uuid, (4, msg((1, pid), (2, tid), (5, name))))


def process(uuid: int, pid: int, name: str = "") -> bytes:
    return track(uuid, (3, msg((1, pid), (6, name))))


def event(ts: int, kind: int, uuid: int, *fields: tuple[int, Value]) -> bytes:
    return packet((8, ts), (10, 1), (13, 2), (11, msg((9, kind), (11, uuid), *fields)))


def begin(ts: int, name: str = "A", uuid: int = 1, *fields: tuple[int, Value]) -> bytes:
    return event(ts, 1, uuid, (23, name), *fields)


def end(ts: int, uuid: int = 1, *fields: tuple[int, Value]) -> bytes:
    return event(ts, 2, uuid, *fields)


def interned(table: int, iid: int, text: str) -> tuple[int, bytes]:
    return (12, msg((table, msg((1, iid), (2, text)))))


def clock(number: int, ticks: int, *fields: tuple[int, Value]) -> tuple[int, bytes]:
    return (1, msg((1, number), (2, ticks), *fields))


def snapshot(*fields: tuple[int, Value]) -> bytes:
    return packet((6, msg(*fields)), (10, 1))


LANE = track(1, (2, "lane"))
HEAD = START + LANE
SLICE = begin(1000) + end(1010)
COUNTER = track(2, (2, "memory"), (8, msg((3, 3))))
INCREMENTAL = packet((10, 1), (13, 1), (59, msg((58, 64), (11, msg((11, 1))))))


def delta(raw: int, kind: int, *fields: tuple[int, Value]) -> bytes:
    return packet((8, raw), (10, 1), (13, 2), (11, msg((9, kind), *fields)))


def annotated(*fields: tuple[int, Value]) -> bytes:
    return HEAD + begin(1000, "A", 1, (4, msg(*fields))) + end(1010)


def attribute(key: str, value: str) -> bytes:
    return packet((126, msg((1, msg((1, key), (3, value))))))


def x(name: str = "A", **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 10, **more}


def flow(phase: str, ts: float, tid: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "name": "f", "cat": "c", "id": 1, "pid": 1, "tid": tid, "ts": ts, **more}


def without(event: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {k: v for k, v in event.items() if k not in keys}


def mark(phase: str, ts: float, name: str = "A") -> dict[str, Any]:
    return {"ph": phase, "name": name, "pid": 1, "tid": 1, "ts": ts}


def archive(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in members.items():
            z.writestr(name, data)
    return out.getvalue()


GOOD = HEAD + SLICE
GOOD_JSON = json.dumps({"traceEvents": [x(), flow("s", 2), flow("f", 5, bp="e")]}).encode()


def manifest(*files: dict[str, Any]) -> bytes:
    return json.dumps({"perfetto_manifest": {"version": 1, "files": files}}).encode()


def written(tmp_path: Path, content: bytes | list[dict[str, Any]], name: str = "trace") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


RANK = START + process(1, 100, "Rank 0") + track(2, (2, "Timeline"), (5, 1))
