"""Marks of allocations (``[memory]``) as counters of what is allocated and reserved.

Marks since 2022 say the totals after each change, per device; older ones only the change, from
which no total can be had. The marks themselves stay instants.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import Layer
from traceconv.readers._kineto_args import count_of, texts_of
from traceconv.readers._traceevents import Incoming

_DEVICES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 15: "HPU", 19: "MTIA"}
"""Device types as PyTorch numbers them (CUDA and HIP are both GPUs)."""


class Mark(msgspec.Struct, gc=False, rename={
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
    "device": "Device Id",
    "type": "Device Type",
}):  # fmt: skip
    """What an allocation mark says, numbers also as text."""

    allocated: int | float | str | None = None
    reserved: int | float | str | None = None
    device: int | float | str | None = None
    type: int | float | str | None = None


_decode_all = msgspec.json.Decoder(list[Mark]).decode


def memory_counters(build: TraceBuilder, rows: Incoming, chosen: NDArray[np.intp]) -> None:
    """Add the totals that the chosen rows say as counter samples."""
    start_ns = rows.start_ns[chosen].tolist()
    samples: dict[int, list[tuple[int, int]]] = {}
    for at, mark in zip(start_ns, _marks(texts_of(build, rows, chosen)), strict=True):
        for what, said in (("Allocated", mark.allocated), ("Reserved", mark.reserved)):
            value = -1 if said is None else count_of(said)
            if value >= 0:
                name = f"{_device(mark)} {what}"
                track = build.track(Layer.COUNTER, name, "Memory", unit="B")
                samples.setdefault(track, []).append((at, value))
    for track, pairs in samples.items():
        times, values = zip(*pairs, strict=True)
        build.seen("counter", len(pairs))
        build.counters(
            track=track, start_ns=np.array(times, np.int64), value=np.array(values, np.float64)
        )


def _marks(texts: list[bytes]) -> list[Mark]:
    try:
        return _decode_all(b"[" + b",".join(texts) + b"]")
    except msgspec.MsgspecError:
        return [_mark(text) for text in texts]


def _mark(text: bytes) -> Mark:
    try:
        said: Any = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return Mark()
    keys = ("Total Allocated", "Total Reserved", "Device Id", "Device Type")
    values = [said.get(key) for key in keys]
    return Mark(*(v if isinstance(v, int | float | str) else None for v in values))


def _device(mark: Mark) -> str:
    kind, number = count_of(mark.type), count_of(mark.device)
    name = _DEVICES.get(kind, f"Device type {kind}" if kind >= 0 else "Device")
    return f"{name} {number}" if number >= 0 and name != "CPU" else name
