"""Arguments of the nodes of Paddle's protobuf, under the names its JSON has for them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from traceconv.readers._paddle_layout import TYPES

PLACE = b'{"device":%d,"context":%d,"stream":%d,"correlation id":%d'
_MEASURES = (
    (b',"blocks per SM":%b', "blocks_per_sm"),
    (b',"warps per SM":%b', "warps_per_sm"),
    (b',"theoretical achieved occupancy %%":%b', "occupancy"),
)
_RARE = (
    (b',"local memory per thread":%d', "local_memory_per_thread"),
    (b',"local memory total":%d', "local_memory_total"),
    (b',"queued":%d', "queued"),
    (b',"submitted":%d', "submitted"),
    (b',"completed":%d', "completed"),
)


def type_name(kind: int) -> str:
    """The name of a kind of event."""
    return TYPES[kind] if 0 <= kind < len(TYPES) else f"Type {kind}"


def kernel_args(info: Any) -> bytes:
    """What follows :data:`PLACE` of a kernel."""
    text = (
        b',"registers per thread":%d,"shared memory":%d,"grid":[%d,%d,%d],"block":[%d,%d,%d]'
    ) % (
        info.registers_per_thread,
        info.dynamic_shared_memory + info.static_shared_memory,
        info.grid_x,
        info.grid_y,
        info.grid_z,
        info.block_x,
        info.block_y,
        info.block_z,
    )
    for key, field in _MEASURES:
        if info.HasField(field):
            text += key % _float(getattr(info, field))
    for key, field in _RARE:
        if value := getattr(info, field):
            text += key % value
    return text + b"}"


def _float(value: float) -> bytes:
    return b"%.6g" % value if math.isfinite(value) else b"null"


def operator_args(kind: int, nodes: Any) -> bytes:
    """Arguments of an operator, as the JSON of Paddle names them; nothing that is empty."""
    args: dict[str, Any] = {}
    for node in nodes:
        event = node.op_supplement_event
        shapes, types = event.input_shapes, event.dtypes
        args["op_type"] = event.op_type
        args["input_shapes"] = {
            decoded(key): [[_signed(n) for n in shape.size] for shape in of_key.shape]
            for key, of_key in zip(shapes.key, shapes.shapes, strict=False)
        }
        args["input_dtypes"] = {
            decoded(key): [decoded(name) for name in of_key.name]
            for key, of_key in zip(types.key, types.dtypes, strict=False)
        }
        args["callstack"] = event.callstack
        args["op_id"] = event.op_id
    said = {key: decoded(v) if isinstance(v, bytes) else v for key, v in args.items() if v}
    return msgspec.json.encode({"type": type_name(kind), **said})


def decoded(raw: bytes) -> str:
    """Text as far as it is UTF-8."""
    return raw.decode("utf-8", "replace")


def _signed(size: int) -> int:
    """Sizes that are not known are -1, in a field without a sign."""
    return size - 2**64 if size >= 2**63 else size
