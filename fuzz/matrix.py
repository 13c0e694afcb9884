"""``python -m fuzz matrix``: kinds of damage against readers, recovered of recoverable events.

Recoverable is what a reader makes of a sound file that holds just the records the damage left
whole: the reader of a file without damage is the judge of the one with. Databases and binary files
have no records that could be taken out by hand; there, all events count as recoverable.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from json import JSONDecoder
from pathlib import Path
from random import Random

from fuzz import mutate
from fuzz.pipeline import Outcome, examined
from fuzz.seeds import Seed, golden

TIMES = 4
"""Every damage is done in so many places."""

FILES = {
    "ascend_db": "two_devices:*.db",
    "ascend_raw": "crashed:stars_soc.data.0.slice_0",
    "ascend_tables": "kernels_alone:kernel_details.csv",
    "chrome_json": "phases:trace.json",
    "event_log": "schema_jsonl:train.jsonl",
    "event_log (table)": "table:events.csv",
    "flight_recorder": "hang:nccl_trace_rank_3.json",
    "kineto": "replay_two_gpus:trace.json",
    "mindspore": "display:*display*.json",
    "mllog": "tasks:slurm.out",
    "msprof": "step_export_slices:msprof_slice_0*.json",
    "nccl_inspector": "untimed:inspector.jsonl",
    "nsight": "training:report.sqlite",
    "paddle": "device_rows:rank0*.json",
    "paddle (protobuf)": "protobuf:*.pb",
    "trace_view": "level0:trace_view.json",
    "xplane": "derived_lines:profile.pb",
}
"""The damaged file of each reader: golden case and name."""

_LIST = re.compile(rb'(?s)\A\s*(?:\{.*?"(?:traceEvents|entries)"\s*:\s*)?\[\s*')
_decode = JSONDecoder(strict=False).raw_decode


@dataclass(frozen=True)
class Framed:
    """A file as records: ``head``, the records with ``joint`` between them, ``tail``."""

    head: bytes
    records: tuple[bytes, ...]
    joint: bytes
    tail: bytes

    def data(self) -> bytes:
        """The file."""
        return self.head + self.joint.join(self.records) + self.tail

    def without(self, *gone: int) -> Framed:
        """The file that never had these records."""
        return replace(self, records=tuple(r for i, r in enumerate(self.records) if i not in gone))

    def with_(self, at: int, record: bytes) -> Framed:
        """The file with another record in the place of one."""
        return replace(self, records=(*self.records[:at], record, *self.records[at + 1 :]))


def framed(data: bytes, name: str) -> Framed | None:
    """The records of a list of JSON objects, of lines, or None for what is neither."""
    if name.endswith((".jsonl", ".csv", ".out", ".log")):
        lines = data.rstrip(b"\n").split(b"\n")
        head = 1 + sum(line.lstrip(b"\xef\xbb\xbf").startswith(b"#") for line in lines)
        return Framed(b"\n".join((*lines[:head], b"")), tuple(lines[head:]), b"\n", b"\n")
    match = _LIST.match(data)
    if match is None or not name.endswith(".json"):
        return None
    text, at, records = data.decode("latin-1"), match.end(), []
    while text[at] == "{":
        _, stop = _decode(text, at)
        records.append(data[at:stop])
        at = stop
        while text[at] in ", \n\r\t":
            at += 1
    return Framed(data[: match.end()], tuple(records), b",\n", data[at:])


# -- damage: a damaged file, and the sound one that holds what is whole ---------------------------

Damage = Callable[[Random, Framed], tuple[bytes, Framed] | None]

_PAIRED = re.compile(rb'"(?:ph|event_type)"\s*:\s*"[MBEbestfI]')
"""Records whose name has to be that of another one."""


def cut(rng: Random, file: Framed) -> tuple[bytes, Framed]:
    """The file ends within a record."""
    kept, record = _before(rng, file)
    start = len(kept.head + kept.joint.join((*kept.records, b"")))
    return file.data()[: start + rng.randrange(2, max(3, len(record) - 1))], kept


def _before(rng: Random, file: Framed) -> tuple[Framed, bytes]:
    at = rng.randrange(len(file.records) // 2, len(file.records))
    return replace(file, records=file.records[:at]), file.records[at]


def unclosed(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """The file lacks what closes its list."""
    return (file.data()[: -len(file.tail)], file) if file.joint == b",\n" else None


def hole(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """From the middle of one record to the middle of the next but one, everything is missing."""
    at = rng.randrange(len(file.records) - 2)
    first, last = file.records[at], file.records[at + 2]
    glued = first[: len(first) // 2] + last[len(last) // 2 :]
    sound = file.without(at, at + 1, at + 2)
    return file.with_(at, glued).without(at + 1, at + 2).data(), sound


def zeros(rng: Random, file: Framed) -> tuple[bytes, Framed]:
    """A record is zeros."""
    at = rng.randrange(len(file.records))
    return file.with_(at, bytes(len(file.records[at]))).data(), file.without(at)


def missing_separator(rng: Random, file: Framed) -> tuple[bytes, Framed]:
    """Nothing stands between two records."""
    at = rng.randrange(len(file.records) - 1)
    glued = file.records[at] + file.records[at + 1]
    lost = () if file.records[at].endswith(b"}") else (at, at + 1)
    return file.with_(at, glued).without(at + 1).data(), file.without(*lost)


def doubled_separator(rng: Random, file: Framed) -> tuple[bytes, Framed]:
    """Two separators stand between two records."""
    at = rng.randrange(len(file.records))
    return file.with_(at, file.joint[:1] + file.records[at]).data(), file


def interleaved(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """A whole record of another writer stands in the middle of one."""
    at = rng.randrange(1, len(file.records))
    one, other = file.records[at], file.records[at - 1]
    half = len(one) // 2
    torn = one[:half] + file.joint + other + file.joint + one[half:]
    return file.with_(at, torn).data(), file.with_(at, other)


def control_characters(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """A name holds raw control characters."""
    return _renamed(rng, file, b"\x01\t\x1f")


def invalid_utf8(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """A name holds bytes that are no UTF-8."""
    return _renamed(rng, file, b"\xff\xc3")


def lone_backslash(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """A name holds a backslash that escapes nothing."""
    return _renamed(rng, file, b"C:\\path ")


def long_name(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """A name is half a megabyte long."""
    return _renamed(rng, file, b"x" * (1 << 19))


def _renamed(rng: Random, file: Framed, more: bytes) -> tuple[bytes, Framed] | None:
    named = [i for i, r in enumerate(file.records) if b'"name"' in r and not _PAIRED.search(r)]
    if not named:
        return None
    at = rng.choice(named)
    name = re.compile(rb'("name"\s*:\s*")').sub(lambda m: m[1] + more, file.records[at], count=1)
    return file.with_(at, name).data(), file


def bare_nan(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """An event has a member NaN."""
    return _with_member(rng, file, b'"odd":NaN')


def deep_nesting(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """An event has a member that nests 100 000 deep."""
    return _with_member(rng, file, b'"odd":' + b"[" * 100_000 + b"]" * 100_000)


def _with_member(rng: Random, file: Framed, member: bytes) -> tuple[bytes, Framed] | None:
    at = rng.randrange(len(file.records))
    if not file.records[at].endswith(b"}"):
        return None
    longer = file.records[at][:-1] + b"," + member + b"}"
    return file.with_(at, longer).data(), file.without(at) if b"[[" in member else file


def far_stamp(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """A stamp is beyond what any clock shows."""
    stamped = [i for i, r in enumerate(file.records) if b'"ts"' in r]
    if not stamped:
        return None
    at = rng.choice(stamped)
    odd = re.sub(rb'("ts"\s*:\s*"?)[-0-9.eE]+', rb"\g<1>99999999999999999999", file.records[at])
    return file.with_(at, odd).data(), file.without(at)


def negative_length(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """A slice ends before it begins."""
    long = [i for i, r in enumerate(file.records) if re.search(rb'"dur"\s*:\s*"?\d', r)]
    if not long:
        return None
    at = rng.choice(long)
    odd = re.sub(rb'("dur"\s*:\s*"?)(?=\d)', rb"\g<1>-1", file.records[at])
    return file.with_(at, odd).data(), file.without(at)


def twice(rng: Random, file: Framed) -> tuple[bytes, Framed]:
    """A record stands twice."""
    at = rng.randrange(len(file.records))
    again = file.records[at] + file.joint + file.records[at]
    return file.with_(at, again).data(), file


def repeated_head(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """All metadata records stand again at the end."""
    again = tuple(r for r in file.records if b'"M"' in r)
    return (replace(file, records=(*file.records, *again)).data(), file) if again else None


def any_order(rng: Random, file: Framed) -> tuple[bytes, Framed] | None:
    """Records stand in reverse; not where a begin has to stand before its end."""
    if any(re.search(rb'"(?:ph|event_type)"\s*:\s*"(?:[BEbe]|INTERVAL)', r) for r in file.records):
        return None
    return replace(file, records=file.records[::-1]).data(), file


KINDS: tuple[Damage, ...] = (
    *(cut, unclosed, hole, zeros, missing_separator, doubled_separator, interleaved),
    *(control_characters, invalid_utf8, lone_backslash, long_name, bare_nan, deep_nesting),
    *(far_stamp, negative_length, twice, repeated_head, any_order),
)
"""What is done to files of records. The others are cut, zeroed and flipped in places."""

BINARY = {"cut": mutate.cut, "zeros": mutate.zeros, "bit_flip": mutate.bit_flip}


# -- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What came of one kind of damage: events recovered, events recoverable."""

    recovered: int
    recoverable: int

    @property
    def share(self) -> float:
        """Recovered of recoverable, 0 to 1."""
        return self.recovered / self.recoverable if self.recoverable else 1.0


def table(readers: dict[str, str], times: int = TIMES) -> dict[str, dict[str, Cell]]:
    """Cells by reader and kind; a kind that makes no sense for a file is left out."""
    found: dict[str, dict[str, Cell]] = {}
    for label, where in readers.items():
        with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
            case, _, pattern = where.partition(":")
            reader = label.partition(" ")[0]
            seeds = golden(Path(place) / "golden", reader)
            seed = next(s for s in seeds if s.name == f"{reader}/{case}")
            file = next(f for f in seed.files if f.match(pattern))
            found[label] = dict(_row(seed, file, Path(place), times))
    return found


def _row(seed: Seed, file: Path, scratch: Path, times: int) -> Iterator[tuple[str, Cell]]:
    original = file.read_bytes()
    frame = framed(original, file.name)

    def read(data: bytes) -> Counter[tuple[int, int]]:
        file.write_bytes(data)
        return _spans(examined(seed.path, scratch, mode=None))

    if frame is None or len(frame.records) < 4:
        whole = read(original)
        for name, mutation in BINARY.items():
            cells = [_cell(read(mutation(Random(i), original, b"")), whole) for i in range(times)]
            yield name, _sum(cells)
        return
    for damage in KINDS:
        made = [damage(Random(f"{damage.__name__} {i}"), frame) for i in range(times)]
        pairs = [one for one in made if one is not None]
        if pairs:
            cells = [_cell(read(data), read(sound.data())) for data, sound in pairs]
            yield damage.__name__, _sum(cells)


def by_kind(found: dict[str, dict[str, Cell]]) -> dict[str, Cell]:
    """The cells of each kind, added up over readers."""
    kinds = dict.fromkeys(kind for row in found.values() for kind in row)
    return {k: _sum([row[k] for row in found.values() if k in row]) for k in kinds}


def _spans(outcome: Outcome) -> Counter[tuple[int, int]]:
    """Start and length of every event: names may be what is damaged."""
    spans: Counter[tuple[int, int]] = Counter()
    for (*_, start, dur), count in outcome.rows.items():
        spans[start, dur] += count
    return spans


def _cell(found: Counter[tuple[int, int]], sound: Counter[tuple[int, int]]) -> Cell:
    return Cell((found & sound).total(), sound.total())


def _sum(cells: list[Cell]) -> Cell:
    return Cell(sum(c.recovered for c in cells), sum(c.recoverable for c in cells))


def main(given: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m fuzz matrix", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES)
    args = parser.parse_args(given)
    found = table(FILES, args.times)
    for label, row in (*found.items(), ("all", by_kind(found))):
        print(label)
        for kind, cell in row.items():
            print(f"  {kind:<20}{cell.recovered:>8} of {cell.recoverable:>6}  {cell.share:>6.1%}")
    return 0
