"""Kernels that communicate: on the lane of their process group, with size and bandwidth.

PyTorch (2.2 and later, NCCL) copies what it knows of a collective into the arguments of its
kernel. The size is that of the larger side: what is gathered, what is to be scattered. Bandwidth
is that of the bus, as nccl-tests define it: bytes per time, times what the algorithm makes each
rank move. A kernel also waits for its peers, so that is what was reached, not what was possible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import Layer, Track
from traceconv.readers._kineto_args import count_of, texts_of
from traceconv.readers._kineto_header import ProcessGroup
from traceconv.readers._traceevents import Incoming

_BYTES = {
    **dict.fromkeys(("complexdouble",), 16),
    **dict.fromkeys(("double", "long", "complexfloat", "float64", "int64", "uint64"), 8),
    **dict.fromkeys(("float", "int", "complexhalf", "float32", "int32", "uint32"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "float16", "int16", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
}
"""Size of an element by ``dtype``; 8-bit floats go by their prefix."""

_SHARES = (
    (re.compile("allreduce"), lambda n: 2 * (n - 1) / n),
    (re.compile("allgather|reducescatter|alltoall|gather|scatter"), lambda n: (n - 1) / n),
    (re.compile("broadcast|reduce|send|recv"), lambda n: 1.0),
)


class Facts(msgspec.Struct, rename={
    "collective": "Collective name",
    "sent": "In msg nelems",
    "received": "Out msg nelems",
    "dtype": "dtype",
    "ranks": "Group size",
    "group": "Process Group Name",
    "description": "Process Group Description",
    "known_bytes": "bytes",
}):  # fmt: skip
    """What the arguments of a kernel say of its collective."""

    collective: Any = None
    sent: Any = None
    received: Any = None
    dtype: Any = None
    ranks: Any = None
    group: Any = None
    description: Any = None
    known_bytes: Any = None


_decode = msgspec.json.Decoder(Facts).decode


@dataclass
class Collectives:
    """Moves kernels that communicate to their lanes.

    Attributes:
        groups: what the file's head says of process groups, by name.
        device_lanes: the tracks kernels lie on, by number.
    """

    build: TraceBuilder
    device_lanes: Mapping[int, Track]
    groups: Mapping[str, ProcessGroup] = field(default_factory=dict)

    def place(self, rows: Incoming, chosen: NDArray[np.intp]) -> None:
        """Give the chosen rows their tracks and more arguments."""
        for row, text in zip(chosen.tolist(), texts_of(self.build, rows, chosen), strict=True):
            try:
                facts = _decode(text)
            except msgspec.MsgspecError:
                facts = Facts()
            rows.track[row] = self._track(facts, self.device_lanes[int(rows.track[row])])
            more = self._more(facts, int(rows.dur_ns[row]))
            if more:
                longer = text.rstrip()[:-1] + more
                rows.address[row] = self.build.spill(longer)
                rows.length[row] = len(longer)

    def _track(self, facts: Facts, stream: Track) -> int:
        """The lane of the process group; of the stream, if no group is named."""
        name = stream.name
        if isinstance(facts.group, str | int) and facts.group != "":
            key = str(facts.group)
            said = facts.description
            if not isinstance(said, str) or said in ("", "undefined"):
                said = self.groups.get(key, ProcessGroup()).description
            name = f"Group {key}" + (f" ({said})" if said else "")
        return self.build.track(Layer.COMM, name, stream.group, "NCCL")

    def _more(self, facts: Facts, dur_ns: int) -> bytes:
        """Further members for the arguments, with the brace that closes them."""
        size = _size(facts)
        if size < 0 or facts.known_bytes is not None:
            return b""
        members = b', "bytes": %d' % size
        ranks = count_of(facts.ranks)
        if ranks < 0:
            ranks = self.groups.get(str(facts.group), ProcessGroup()).size
        share = _share(facts.collective, ranks)
        if share > 0 and dur_ns > 0:
            members += b', "bus bandwidth (GB/s)": %.3f' % (size / dur_ns * share)
        return members + b"}"


def _size(facts: Facts) -> int:
    """Bytes of the larger side, -1 if that is not known."""
    elements = max(count_of(facts.sent), count_of(facts.received))
    kind = str(facts.dtype).lower()
    each = 1 if kind.startswith("float8") else _BYTES.get(kind, -1)
    return elements * each if elements >= 0 and each > 0 else -1


def _share(collective: Any, ranks: int) -> float:
    """Bus bytes per byte of a collective among so many ranks; 0 if that is not defined."""
    name = str(collective).lower().replace("_", "")
    if ranks < 2 or not isinstance(collective, str):
        return 0.0
    return next((share(ranks) for pattern, share in _SHARES if pattern.match(name)), 0.0)
