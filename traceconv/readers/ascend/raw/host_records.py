"""Files of the collector's host side: records of fixed size, and the names behind their numbers.

They are called ``(aging|unaging).<class>.<kind>.slice_<n>``; the oldest part of what is *aging* may
have been dropped. Every record begins with the same magic number, a level and a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64
from traceconv.io.sources import Source
from traceconv.readers.ascend.raw.slices import Records, gathered, layout, numbered, records
from traceconv.readers.shared.arguments import factored

MAGIC = 0x5A5A
NEVER = -1
"""The end of an API record that is one half of an event (2**64 - 1), as a column holds it."""

_HEAD = {"magic": (0, "<u2"), "thread": (8, "<u4"), "time": (16, "<u8")}
"""Of all but calls; level, type and length say what the file's name does, too."""

LAYOUTS: Mapping[str, np.dtype[np.void]] = {
    "api_event.data": layout(
        40, magic=(0, "<u2"), level=(2, "<u2"), type=(4, "<u4"), thread=(8, "<u4"),
        request=(12, "<u4"), time=(16, "<u8"), end=(24, "<u8"), item=(32, "<u8"),
    ),
    "compact.task_track": layout(
        64, **_HEAD, device=(24, "<u2"), stream=(26, "<u2"), task=(28, "<u2"), batch=(30, "<u2"),
        kind=(32, "<u8"), kernel=(40, "<u8"),
    ),
    "compact.node_basic_info": layout(
        64, **_HEAD, op=(24, "<u8"), unit=(32, "<u4"), op_type=(36, "<u8"), blocks=(44, "<u4"),
        flags=(48, "<u4"), state=(52, "u1"),
    ),
    "compact.hccl_op_info": layout(
        64, **_HEAD, bits=(24, "u1"), data_type=(25, "u1"), algorithm=(26, "<u8"),
        count=(34, "<u8"), group=(42, "<u8"),
    ),
    "compact.memcpy_info": layout(64, **_HEAD, bytes=(24, "<u8"), direction=(40, "<u2")),
    "additional.hccl_info": layout(
        256, **_HEAD, item=(24, "<u8"), group=(40, "<u8"), local_rank=(48, "<u4"),
        remote_rank=(52, "<u4"), rank_size=(56, "<u4"), plane=(64, "<u4"), context=(68, "<u4"),
        notify=(72, "<u8"), bytes=(112, "<u8"), data_type=(124, "<u4"), link=(128, "<u4"),
        transport=(132, "<u4"), rdma=(136, "<u4"),
    ),
    "additional.graph_id_map": layout(
        256, **_HEAD, name=(24, "<u8"), graph=(32, "<u4"), model=(36, "<u4")
    ),
    "additional.context_id_info": layout(
        256, **_HEAD, op=(24, "<u8"), count=(32, "<u4"), contexts=(36, "(55,)<u4")
    ),
}  # fmt: skip
"""The records this reader takes in, by class and kind."""

HASH_DIC, TYPE_DIC = "additional.hash_dic", "additional.type_info_dic"

_FILE = re.compile(
    r"(?P<age>aging|unaging)\.(?P<kind>(?:additional|compact|variable)\.\w+|api_event\.data)"
)
_SIZES = {"compact": 64, "additional": 256}
_HASH_LINE = re.compile(rb"^[ \t]*(\d{1,20}):([^\r\n]*)", re.MULTILINE)
_TYPE_LINE = re.compile(rb"^[ \t]*(\d{1,5})_(\d{1,20}):([^\r\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class HostFiles:
    """The slices of one ``host/data`` folder, by class and kind; kept before aging ones."""

    source: Source
    build: TraceBuilder
    slices: Mapping[str, Sequence[Sequence[str]]]

    @classmethod
    def among(cls, source: Source, names: Iterable[str], build: TraceBuilder) -> HostFiles:
        """Those of ``names`` that the collector's host side writes."""
        found: dict[str, list[Sequence[str]]] = {}
        for stem, slices in reversed(numbered(names).items()):  # "unaging" before "aging"
            if match := _FILE.fullmatch(stem.rpartition("/")[2]):
                found.setdefault(match["kind"], []).append(slices)
        return cls(source, build, found)

    def columns(self, kind: str) -> dict[str, I64]:
        """The records of a kind as int64 columns (64-bit numbers keep their bits), in the order
        of their files; what is damaged is booked.
        """
        cut = [np.zeros(0, LAYOUTS[kind])]
        for slices in self.slices.get(kind, ()):
            blob = gathered(self.source, slices, self.build)
            self.build.file = self.source.title(slices[0])
            cut.append(records(blob, LAYOUTS[kind], _has_magic, self.build))
        return {
            name: np.concatenate([rows[name] for rows in cut]).astype(np.int64)
            for name in LAYOUTS[kind].names or ()
            if name != "magic"
        }

    def text(self, kind: str) -> bytes:
        """The lines of a dictionary."""
        return b"\n".join(
            gathered(self.source, slices, self.build) for slices in self.slices.get(kind, ())
        )

    def book_others(self) -> None:
        """Count the records of kinds that are not read."""
        for kind, every in sorted(self.slices.items()):
            if kind in LAYOUTS or kind in (HASH_DIC, TYPE_DIC):
                continue
            size = _SIZES.get(kind.partition(".")[0], 0)
            for slices in every:
                self.build.file = self.source.title(slices[0])
                stored = sum(self.source.size(name) for name in slices)
                self.build.skip("kind-not-read", kind, stored // size if size else len(slices))


def _has_magic(rows: Records) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = rows["magic"] == MAGIC
    return found


@dataclass(frozen=True)
class Dictionary:
    """Names of numbers.

    Attributes:
        hashes: by 64-bit hash, as a signed number.
        types:  by level and type.
        build:  where numbers without a name are booked.
    """

    hashes: Mapping[int, str]
    types: Mapping[tuple[int, int], str]
    build: TraceBuilder
    _missing: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, files: HostFiles) -> Dictionary:
        """The dictionaries of a folder."""
        hashes = {
            _signed(int(number)): name.decode("utf-8", "replace")
            for number, name in _HASH_LINE.findall(files.text(HASH_DIC))
        }
        types = {
            (int(level), int(number)): name.decode("utf-8", "replace")
            for level, number, name in _TYPE_LINE.findall(files.text(TYPE_DIC))
        }
        return cls(hashes, types, files.build)

    def name(self, code: int) -> str:
        """The string of a hash; the number itself if the dictionary lacks it."""
        return self.hashes.get(code) or str(code % (1 << 64))

    def names(self, codes: I64, place: str) -> dict[int, str]:
        """Strings of all hashes of a column but 0, which stands for none; those that are lacking
        are booked under ``place``.
        """
        values, back = factored(codes)
        lacking = np.array([v != 0 and v not in self.hashes for v in values.tolist()], bool)
        self.build.skip("name-unknown", place, int(lacking[back].sum()))
        return {v: self.name(v) for v in values.tolist() if v}

    def type_name(self, level: int, number: int) -> str:
        """The name of a type of records of a level; older collectors hash it. "" if unknown."""
        return self.types.get((level, number)) or self.hashes.get(number, "")


def _signed(number: int) -> int:
    number %= 1 << 64
    return number - (1 << 64) if number >> 63 else number
