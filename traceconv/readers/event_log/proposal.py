"""Propose a mapping for an unknown log, from the names and values of its columns.

The proposal is tried on the first records and only shown in a message: nothing is read by a guess.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from traceconv.core.errors import InputError, OptionError
from traceconv.core.patterns import lazy_regex
from traceconv.readers.event_log import find
from traceconv.readers.event_log.lanes import KIND_WORDS
from traceconv.readers.event_log.mapping import UNITS, parsed
from traceconv.readers.event_log.records import batches
from traceconv.readers.shared.lines import Lines, unheard
from traceconv.readers.shared.numbers import ISO_TIME, is_iso_time, times

_SHARE = 0.8
"""Share of the first records that must have a time."""

_NUMBER = lazy_regex(r"-?\d+(?:[.,]\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
_WHOLE = lazy_regex(r"\d{1,9}", re.ASCII)
_BRACKETS = lazy_regex(r"\s*\((\w+|[µμ]s)\)\Z")
_PIECES = lazy_regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[µμ]s|\d+")
"""Words in the name of a column: ``BeginNs``, ``exec_time_ns``."""

_SPELLED: Mapping[str, str] = {
    **UNITS, "secs": "s", "seconds": "s", "millis": "ms", "milliseconds": "ms", "micros": "us",
    "microseconds": "us", "nano": "ns", "nanos": "ns", "nanoseconds": "ns",
}  # fmt: skip
"""Units as column names spell them -> units here."""

_WORDS: Mapping[str, tuple[str, ...]] = {
    "ts": ("ts", "timestamp", "start", "begin", "began", "started", "starttime", "begintime",
           "time", "datetime", "date", "t"),
    "end": ("end", "endtime", "finish", "stop"),
    "dur": ("dur", "duration", "elapsed", "took", "latency", "length", "runtime", "exectime",
            "executiontime", "walltime", "lasted", "spent"),
    "name": ("name", "opname", "event", "op", "operation", "operator", "function", "func", "kernel",
             "task", "action", "what", "label", "message", "msg", "title", "phase", "stage",
             "type"),
    "rank": ("rank", "globalrank", "workerrank", "rankid", "worker", "workerid"),
    "process or device": ("device", "deviceid", "gpu", "gpuid", "npu", "npuid", "process", "proc"),
    "stream": ("stream", "streamid", "queue", "queueid"),
    "thread": ("thread", "tid", "threadid"),
    "process": ("process", "pid", "processid"),
}  # fmt: skip
"""Names of columns, in letters and digits only, by target; likely ones first."""

_PARTS = {
    "ts": ("start", "begin", "began", "stamp"), "end": ("end", "finish", "stop"),
    "dur": ("dur", "elapsed", "took", "latency", "exec"),
    "name": ("name", "event", "func", "kernel", "message", "operat", "type"),
}  # fmt: skip
"""Parts of column names by target."""

_SUMS = lazy_regex(
    r"\b(?:total|sum|avg|average|mean|min|max|count|calls|ratio|percent|frequency)\b"
)
"""Words in columns of summary tables, which have no times."""

_UNIX = range(1_420_000_000, 2_210_000_000)
"""Plausible Unix times in s: the years 2015 to 2039."""

_UNIX_UNITS = {1: "s", 10**3: "ms", 10**6: "us", 10**9: "ns"}

_UNSAFE = lazy_regex(r"[`'\"\\\x00-\x1f\x7f]")
"""Columns with these in their names are not proposed: users paste the message into a shell."""

_DIGITS = {"ms": 6, "us": 3}
"""Digits behind the point down to a nanosecond."""

_ONE_NUMBER = lazy_regex(r"\D*\d{1,7}\D*", re.ASCII)
"""The name of a worker that has a number."""

_RANK = lazy_regex(r"\W*\brank\W?\d{1,7}\b", re.ASCII | re.IGNORECASE)

_LEVEL = lazy_regex(r"\W*\b(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|TRACE|NOTICE)\b")


@dataclass(frozen=True)
class Proposal:
    """A proposal for one log.

    Attributes:
        columns: of the log; () for lines of text.
        mapping: one that reads it; "" if none was found.
        assumed: its assumption, as the end of a sentence; "" without one.
    """

    columns: tuple[str, ...]
    mapping: str = ""
    assumed: str = ""


def proposed(head: bytes) -> Proposal | None:
    """The proposal for a file that begins with ``head``; None unless it is a log of events."""
    if find.is_binary(head):
        return None
    lines = [line for _, line in find.first_lines(head)]
    columns = _table(lines)
    if columns is None:
        return _text_lines(head, lines)
    names = tuple(columns)
    for mapping, assumed in _guesses(columns):
        if _works(head, mapping):
            return Proposal(names, mapping, assumed)
    return Proposal(names)


def _table(lines: Sequence[str]) -> dict[str, list[str]] | None:
    """The cells of the first records by column; None if this is neither JSON lines nor a table."""
    lines = [line for line in lines if not line.startswith("#")]
    if lines and lines[0].startswith("{"):
        records = [fields for line in lines if (fields := find.fields_of(line)) is not None]
        keys = dict.fromkeys(key for record in records for key in record)
        if len(records) < 2:  # any document may be written in one line
            return None
        return {key: [record.get(key, "") for record in records] for key in keys}
    names = find.columns_in("\n".join(lines[:1]).encode())
    if (
        len(names) < 2
        or not all(names)
        or any(is_iso_time(n) or _NUMBER.fullmatch(n) for n in names)
    ):
        return None
    cut = [find.row_of(line, lines[0]) for line in lines[1:]]
    rows = [row for row in cut if row]
    if 2 * len(rows) < len(cut) or not rows:
        return None
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}


def _guesses(columns: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Mappings, the likeliest first, and their assumptions."""
    usable = {
        name: [cell for cell in cells if cell]
        for name, cells in columns.items()
        if _UNSAFE.search(name) is None and name == name.strip()
    }
    moments = [name for name, cells in usable.items() if _all(cells, is_iso_time)]
    numbers = [name for name, cells in usable.items() if _all(cells, _NUMBER.fullmatch)]
    texts = [n for n in usable if n not in moments and n not in numbers and usable[n]]
    name = next(iter([*_called("name", texts), *texts]), "")
    times = [*_called("ts", moments), *_called("ts", numbers)]
    if any(_SUMS.search(re.sub(r"[\W_]+", " ", column.lower())) for column in columns):
        times = [column for column in times if any(part in column.lower() for part in _PARTS["ts"])]
    for ts in dict.fromkeys([*times, *moments]):
        if ts == name:
            continue
        other_numbers = [n for n in numbers if n not in (ts, name)]
        ends = _called("end", moments if ts in moments else other_numbers)
        lengths = _called("dur", other_numbers)
        unit, assumed = (
            ("", "")
            if ts in moments
            else _unit(ts, usable[ts], [*ends[:1], *lengths[:1]], clock=True)
        )
        items = [f"name={name}" if name else "name='event'", f"ts={_column(ts, unit)}"]
        if lengths:
            length_unit, also = _unit(lengths[0], usable[lengths[0]], [ts])
            if assumed and also:  # nothing says either
                length_unit = unit
            items.append(f"dur={_column(lengths[0], length_unit)}")
            assumed = assumed or also
        elif ends and ends[0] not in (ts, name):
            items.append(f"end={_column(ends[0], unit)}")
        whole_numbers = [n for n in other_numbers if _all(usable[n], _WHOLE.fullmatch)]
        numbered = [n for n in texts if n != name and _all(usable[n], _ONE_NUMBER.fullmatch)]
        ranks = [*_called("rank", whole_numbers), *_called("rank", numbered)]
        if not ranks:  # numbers of processes of the system are above 0
            ranks = [n for n in _called("process or device", whole_numbers) if "0" in usable[n]][:1]
            assumed = "; ".join(
                filter(None, [assumed, *(f"{n} is taken for the rank" for n in ranks)])
            )
        items += [f"rank={n}" if n in whole_numbers else rf"rank={n}/(\d+)/" for n in ranks[:1]]
        free = [n for n in usable if n not in (ts, name, *ranks[:1]) and n not in moments]
        streams, threads = _called("stream", free), _called("thread", free)
        items += [f"stream={streams[0]}"] if streams else [f"thread={n}" for n in threads[:1]]
        items += [f"process={process}" for process in _called("process", free)[:1]]
        kinds = (
            n for n in texts if n != name and {c.strip().lower() for c in usable[n]} <= KIND_WORDS
        )
        items += [f"kind={kind}" for kind in kinds][:1]
        yield ",".join(items), assumed


def _all(cells: Sequence[str], fits: object) -> bool:
    return bool(cells) and sum(bool(fits(cell.strip())) for cell in cells) >= _SHARE * len(cells)  # type: ignore[operator]


def _called(target: str, names: Sequence[str]) -> list[str]:
    """The names that may be ``target``, likely ones first."""
    words = _WORDS[target]
    plain = {name: "".join(_pieces(name)[0]) for name in names}
    matches = [n for word in words for n in names if plain[n] == word]
    matches += [n for part in _PARTS.get(target, ()) for n in names if part in plain[n]]
    return list(dict.fromkeys(matches))


def _pieces(name: str) -> tuple[list[str], str]:
    """The words of a column's name without its unit, in lower case, and the unit, "" if none.

    A lone "s" is a unit at the end only.
    """
    words = [word.lower() for word in _PIECES.findall(name)]
    units = [i for i, w in enumerate(words) if w in _SPELLED and (w != "s" or i == len(words) - 1)]
    if len(units) != 1 or len(words) == 1:
        return words, _SPELLED[words[0]] if len(words) == len(units) == 1 else ""
    return words[: units[0]] + words[units[0] + 1 :], _SPELLED[words[units[0]]]


def _unit(
    name: str, cells: Sequence[str], beside: Sequence[str] = (), clock: bool = False
) -> tuple[str, str]:
    """The unit of a column of numbers, "(*)" if it is in brackets, and the assumption made.

    Args:
        beside: columns of other times, whose unit a column without one has.
        clock:  the column may hold Unix times.
    """
    if (match := _BRACKETS.search(name)) and match[1] in UNITS:
        return "(*)", ""
    if unit := _pieces(name)[1]:
        return unit, ""
    numbers = (cell.strip() for cell in cells if clock and _NUMBER.fullmatch(cell.strip()))
    first_value = abs(float(next(numbers, "0").replace(",", ".")))
    for scale, unit in _UNIX_UNITS.items():
        if _UNIX.start <= first_value / scale < _UNIX.stop:
            return unit, f"{name} is taken for Unix time in {unit}"
    for neighbour in beside:
        if unit := _pieces(neighbour)[1]:
            return unit, f"{name} is taken to be in {unit}, as {neighbour} is"
    guess = _finest(cells)
    return guess, f"nothing says the unit of {name}, :{guess} is a guess (s, ms, us or ns)"


def _finest(cells: Sequence[str]) -> str:
    """The unit in which times have no digits below a nanosecond; seconds if all are below 1."""
    numbers = [cell.strip().replace(",", ".") for cell in cells if _NUMBER.fullmatch(cell.strip())]
    digits = max((len(number.partition(".")[2]) for number in numbers), default=0)
    if digits > _DIGITS["ms"] or (digits and all(abs(float(number)) < 1 for number in numbers)):
        return "s"
    return "ms" if digits > _DIGITS["us"] else "us"


def _column(name: str, unit: str) -> str:
    if unit == "(*)":
        return f"{_BRACKETS.sub('', name)} (*)"
    return f"{name}:{unit}" if unit else name


def _text_lines(head: bytes, lines: Sequence[str]) -> Proposal | None:
    """A pattern for lines with a time within their first words."""
    stamp = re.compile(rf"\A\W{{0,3}}(?:\S{{1,40}} ){{0,3}}?\W?(?P<ts>{ISO_TIME})")
    stamps = [match for line in lines if (match := stamp.search(line))]
    if not stamps or 2 * len(stamps) < len(lines):
        return None
    levels = sum(bool(_LEVEL.match(match.string, match.end())) for match in stamps)
    level = r"\W*(?P<level>[A-Za-z]+)\b" if levels >= _SHARE * len(stamps) else ""
    begun = [
        (_LEVEL.match(match.string, match.end()) if level else None) or match for match in stamps
    ]
    ranked = all(_RANK.match(match.string, match.end()) for match in begun)
    rank = r"\W*[Rr][Aa][Nn][Kk]\W?(?P<rank>\d+)\b" if ranked else ""
    mapping = rf"line=/(?P<ts>{ISO_TIME}){level}{rank}\W*(?P<name>\S.*)/"
    return Proposal((), mapping) if _works(head, mapping) else None


def _works(head: bytes, mapping: str) -> bool:
    """Whether a mapping finds a name and a time in most of the first records."""
    try:
        layout = find.recognised(head, "", parsed(mapping))
    except (InputError, OptionError):
        return False
    if not layout:
        return False
    for batch in batches(Lines(io.BytesIO(head), unheard), layout):
        ts = times(batch.columns.get("ts", [""] * len(batch)), layout.units["ts"])
        names = sum(bool(name.strip()) for name in batch.columns.get("name", ()))
        sound = int((ts.present & ~ts.bad).sum())
        return min(names, sound) >= _SHARE * len(batch) and sound > 0
    return False
