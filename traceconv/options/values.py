"""What people type, as values: one parser for each kind of value.

Every parser takes a value and the name of the option, and raises
:class:`~traceconv.core.errors.OptionError` for what it does not understand. It takes back what it
returned.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from traceconv.core.choices import unknown
from traceconv.core.errors import ClockError, OptionError
from traceconv.core.patterns import compiled, lazy_regex
from traceconv.core.rank_ranges import Selected

if TYPE_CHECKING:
    from traceconv.core.job_shape import ByCoordinates
    from traceconv.writers.size_limit import SizeLimit

AnyPath: TypeAlias = "str | os.PathLike[str]"
"""A file or folder; also a URL or a pattern, as text."""

Paths: TypeAlias = "AnyPath | Iterable[AnyPath]"
"""One or several of them."""

Numbers: TypeAlias = "int | str | Iterable[int]"
"""``3``, ``[0, 2]``, ``range(4)``, ``"0-7,12"`` or ``"all"``."""

Ranks: TypeAlias = "Numbers | Mapping[str, Numbers] | ByCoordinates"
"""Numbers of ranks, or coordinates: ``"tp=0,pp=1"``, ``{"tp": 0, "pp": 1}``."""

SelectedRanks: TypeAlias = "tuple[int, ...] | ByCoordinates | None"
"""Ranks as :func:`ranks` returns them."""

Names: TypeAlias = "str | Iterable[str]"
"""``"kernel"``, ``"step,overlap"`` or a list."""

Window: TypeAlias = "str | tuple[int | None, int | None]"
"""``"1.2s:1.5s"``, ``"300ms:"`` or (start, end) in ns; None = open."""

Size: TypeAlias = "int | str"
"""Bytes, or ``"200M"`` in units of 1024."""

Count: TypeAlias = "int | str"
"""A number, or ``"1M"`` in units of 1000."""

Length: TypeAlias = "int | str"
"""Nanoseconds, or ``"50us"``."""

Limit: TypeAlias = "SizeLimit | int | str"
"""A size limit, or bytes as of :data:`Size`."""

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called as (bytes done since the last call, bytes in total or 0, label)."""

Mode = Literal["summary", "detail", "source"]
Layout = Literal["rank", "lane"]
LayerName = Literal[
    "step", "overlap", "host", "runtime", "scope", "device", "comm", "counter", "other"
]
AlignMethod = Literal["auto", "collective", "meta", "wall", "none"]
EngineName = Literal["local", "dask", "ray"]
OverLimit = Literal["reduce", "split", "fail"]
QueryEngine = Literal["auto", "duckdb", "perfetto"]
OnUnknown = Literal["pass", "fail"]
Viewer = Literal["perfetto", "chrome", "none"]

Layers: TypeAlias = "LayerName | Iterable[LayerName]"
"""``"device"`` or a list; also ``"device,comm"``."""

Align: TypeAlias = "AlignMethod | os.PathLike[str]"
"""A method, or a JSON file of offsets: a ``Path``, or its name as text."""

Shard: TypeAlias = "str | tuple[int, int]"
"""``"2/8"`` or (2, 8), from 0."""

MOST_NUMBERS = 1_000_001
"""More numbers in the ranges of a selection are taken for a mistake."""

_NUMBERS = 'numbers like 3, [0, 2], range(4), "0-7,12" or "all"'
_RANGE = lazy_regex(r"(\d{1,18})(?:\s*-\s*(\d{1,18}))?\Z")
_AXIS = lazy_regex(r"[a-z][a-z_]*\Z")
_SIZE = lazy_regex(r"(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?)(?:i?B)?\Z", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_TIME = lazy_regex(r"([+-]?\d[\d.]*(?:[eE][+-]?\d+)?)\s*(s|ms|us|µs|ns)\Z")
_DECIMAL_COMMA = lazy_regex(r"[+-]?\d+,\d+ ?[a-zµA-Z%]*\Z")
_SHARD = lazy_regex(r"(\d{1,6})/(\d{1,6})\Z")
_THRESHOLD = lazy_regex(r"([a-z-]+(?:\.[a-z-]+)?)\s*=\s*(-?\d{1,15}(?:\.\d{1,15})?)\Z")


def _refuse(value: Any, valid: str, option: str) -> OptionError:
    """The error for a value that is not ``valid``."""
    if isinstance(value, str) and any(
        _DECIMAL_COMMA.match(piece.strip()) for piece in value.split(":")
    ):
        hint = value.replace(",", ".")
        return OptionError(f"{value!r} has a decimal comma; write {hint!r}", option)
    return OptionError(f"{value!r} is not {valid}", option)


# -- numbers ------------------------------------------------------------------------------


def numbers(value: Numbers | None, option: str) -> Selected | None:
    """Whole numbers from 0, ascending, each once; None for all.

    Raises:
        OptionError: it is none of what :data:`Numbers` lists.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() == "all"):
        return None
    if isinstance(value, Selected):
        return value
    ranges: list[range] = []
    if isinstance(value, str):
        for item in value.split(","):
            match = _RANGE.match(item.strip())
            if not match:
                raise OptionError(f"{value!r} is not a list like 0-7,12, nor all", option)
            low, high = int(match[1]), int(match[2] or match[1])
            if high < low:
                raise OptionError(f"{item.strip()!r} is not a range from low to high", option)
            ranges.append(range(low, high + 1))
    elif isinstance(value, range):
        ranges = [value]
    else:
        several = isinstance(value, Iterable) and not isinstance(value, bytes)
        items: Iterable[Any] = value if several else (value,)  # type: ignore[assignment]
        ranges = [
            range(n, n + 1) for n in (whole(item_value, option, _NUMBERS) for item_value in items)
        ]
    if sum(abs(part.stop - part.start) for part in ranges) > MOST_NUMBERS:
        raise OptionError(f"{str(value)[:40]!r} has more than {MOST_NUMBERS:,} numbers", option)
    selected = Selected.of(ranges)
    if not selected:
        raise OptionError("is empty; leave it out for all", option)
    if selected[0] < 0:
        raise OptionError(f"{selected[0]} is less than 0", option)
    return selected


def whole(value: Any, option: str, valid: str = "a whole number") -> int:
    """A whole number of any integer type (numpy's too), but no truth value."""
    if isinstance(value, bool):
        raise OptionError(f"{value!r} is not {valid}", option)
    try:
        return operator.index(value)
    except TypeError as e:
        raise OptionError(f"{value!r} is not {valid}", option) from e


def count(value: Count | None, option: str) -> int | None:
    """A number from 1, also as text; ``"1M"`` in units of 1000; None as it is."""
    return None if value is None else _amount(value, 1000, option, "a number like 20, 10K or 1M")


def rows(value: Count | None, option: str) -> int | None:
    """As :func:`count`; also "all", as None."""
    if value is None or value == "all":
        return None
    try:
        return count(value, option)
    except OptionError as e:
        raise OptionError(f"{value!r} is neither a number of rows nor all", option) from e


def size(value: Size | None, option: str) -> int | None:
    """Bytes, from 1; None as it is."""
    valid = "a size like 800K, 200M or 2G, or a number of bytes"
    return None if value is None else _amount(value, 1024, option, valid)


def _amount(value: Any, unit: int, option: str, valid: str) -> int:
    if isinstance(value, str):
        match = _SIZE.match(value.strip())
        if not match:
            raise _refuse(value, valid, option)
        before, _, decimals = match[1].partition(".")
        scale: int = unit ** _POWERS[match[2].upper()]
        number = int(before + decimals) * scale // 10 ** len(decimals)
    else:
        number = whole(value, option, valid)
    if number < 1:
        raise OptionError(f"{value!r} is less than 1", option)
    return int(number)


def ranks(value: Ranks | None, option: str) -> tuple[int, ...] | ByCoordinates | None:
    """Ranks by their numbers, as :func:`numbers`, or by coordinates: ``"tp=0,pp=1-3"``,
    ``{"tp": 0, "pp": [1, 2, 3]}``; None for all.

    Raises:
        OptionError: it is none of these.
    """
    from traceconv.core.job_shape import ByCoordinates

    if isinstance(value, ByCoordinates):
        return value
    if isinstance(value, Mapping):
        by_axis = {str(axis): numbers(values, option) for axis, values in value.items()}
    elif isinstance(value, str) and "=" in value:
        texts: dict[str, list[str]] = {}
        axis = ""
        for item in value.split(","):
            name, equals, number_text = item.rpartition("=")
            axis = name.strip().lower() if equals else axis
            if not _AXIS.fullmatch(axis) or (equals and axis in texts):
                raise OptionError(f"{value!r} is not a list like tp=0,pp=1-3", option)
            texts.setdefault(axis, []).append(number_text)
        by_axis = {
            axis: numbers(",".join(texts_of_axis), option) for axis, texts_of_axis in texts.items()
        }
    else:
        return numbers(value, option)
    if not by_axis or None in by_axis.values():
        raise OptionError(f"{value!r} names no coordinates, like tp=0,pp=1-3", option)
    return ByCoordinates(
        {axis: selected for axis, selected in by_axis.items() if selected is not None}
    )


# -- times --------------------------------------------------------------------------------


def window(value: Window | None, option: str) -> tuple[int | None, int | None] | None:
    """(start, end) in ns; None = open.

    Raises:
        OptionError: it is no window, or ends before it starts.
    """
    if value is None:
        return None
    if isinstance(value, str):
        start_text, colon, end_text = value.partition(":")
        if not colon or not (start_text.strip() or end_text.strip()):
            raise _refuse(value, "a window like 1.2s:1.5s, 300ms: or :2s", option)
        start, end = (
            _time(bound_text, option) if bound_text.strip() else None
            for bound_text in (start_text, end_text)
        )
    else:
        valid = 'a window like "1.2s:1.5s", or (start, end) in whole ns'
        if not isinstance(value, Sequence) or len(value) != 2:
            raise OptionError(f"{value!r} is not {valid}", option)
        start, end = (None if bound is None else _stamp(bound, option, valid) for bound in value)
    if start is not None and end is not None and start >= end:
        raise OptionError(f"{value!r} ends before it starts", option)
    return start, end


def _stamp(value: Any, option: str, valid: str) -> int:
    """A time as ns, or as text with its unit."""
    ns = _time(value, option) if isinstance(value, str) else whole(value, option, valid)
    if abs(ns) >= 2**63:
        raise OptionError(f"{value!r} is not {valid}", option)
    return ns


def _time(text: str, option: str) -> int:
    match = _TIME.match(text.strip())
    if not match:
        raise _refuse(text, "a time with its unit (s, ms, us, ns)", option)
    from traceconv.core.clock import to_ns

    try:
        return to_ns(match[1], "us" if match[2] == "µs" else match[2])
    except ClockError as e:
        raise OptionError(str(e), option) from e


def length(value: Length | None, option: str) -> int | None:
    """ns, from 0; None as it is."""
    if value is None:
        return None
    ns = _stamp(value, option, "a length like 50us, or whole ns")
    if ns < 0:
        raise OptionError(f"{value!r} is less than 0", option)
    return ns


def percent(value: float | str, option: str) -> float:
    """A percentage from 0 to 100, also as text: ``1.5`` or ``"1.5%"``."""
    try:
        number = float(value.removesuffix("%") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number <= 100:
        raise _refuse(value, "a percentage from 0 to 100", option)
    return number


# -- words --------------------------------------------------------------------------------


def one_of(*choices: str) -> Callable[[Any, str], Any]:
    """A parser for one of some words."""

    def parse(value: Any, option: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise OptionError(unknown("choice", value, choices), option)
        return value

    return parse


def mode(value: Mode | None, option: str) -> Mode:
    """A mode; None is "source"."""
    checked: Mode = one_of(*get_args(Mode))("source" if value is None else value, option)
    return checked


def words(value: Names | None, option: str) -> tuple[str, ...]:
    """Words, as written; none for None."""
    if value is None:
        return ()
    valid = 'a name, "a,b" or a list of names'
    if isinstance(value, str):
        return tuple(word for item in value.split(",") if (word := item.strip()))
    if not isinstance(value, Iterable):
        raise OptionError(f"{value!r} is not {valid}", option)
    return _texts(value, option, valid)


def names(value: Names | None, option: str) -> tuple[str, ...] | None:
    """As :func:`words`; None for None."""
    return None if value is None else words(value, option)


def texts(value: Names | None, option: str) -> tuple[str, ...]:
    """Texts that may contain commas: one, or several."""
    return _texts((value,) if isinstance(value, str) else value or (), option, "text")


def _texts(value: Iterable[Any], option: str, valid: str) -> tuple[str, ...]:
    items = tuple(value)
    for word in items:
        if not isinstance(word, str):
            raise OptionError(f"{word!r} is not {valid}", option)
    return items


def layers(value: Layers | None, option: str) -> tuple[LayerName, ...] | None:
    """Names of layers, each once; None as it is."""
    for word in words(value, option):
        if word not in get_args(LayerName):
            raise OptionError(unknown("layer", word, get_args(LayerName)), option)
    return None if value is None else tuple(dict.fromkeys(words(value, option)))  # type: ignore[arg-type]


def kept_args(value: Names | None, option: str) -> tuple[str, ...] | None:
    """Keys of arguments; None for all, () for none."""
    if value is None or value in ("all", "none"):
        return () if value == "none" else None
    return words(value, option)


def pattern(value: str | None, option: str) -> str | None:
    """A regular expression that can be compiled; None as it is."""
    try:
        compiled(text(value, option) or "")
    except re.error as e:
        raise OptionError(f"{value!r} is not a regular expression: {e}", option) from e
    return value


def text(value: Any, option: str) -> str | None:
    """Text; None as it is."""
    if value is not None and not isinstance(value, str):
        raise OptionError(f"{value!r} is not text", option)
    return value


def switch(value: Any, option: str) -> bool:
    """Whether something is wanted."""
    return bool(value)


def thresholds(
    value: Mapping[str, float] | str | Iterable[str] | None, option: str
) -> dict[str, float]:
    """Thresholds by name: of ``{"long-tail": 30}``, ``"long-tail=30"`` or a list of such texts."""
    if isinstance(value, Mapping):
        for key, number in value.items():
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise OptionError(f"{key}: {number!r} is not a number", option)
            if not math.isfinite(number):
                raise OptionError(f"{key}: {number} is not a finite number", option)
        return {str(key): float(number) for key, number in value.items()}
    by_name = {}
    for item in words(value, option):
        match = _THRESHOLD.match(item.strip())
        if not match:
            raise OptionError(f"{item!r} is not RULE=NUMBER or RULE.NAME=NUMBER", option)
        by_name[match[1]] = float(match[2])
    return by_name


def parameters(
    value: Mapping[str, object] | str | Iterable[str] | None, option: str
) -> dict[str, Any]:
    """Values by name: of ``{"least": 5}``, ``"least=5"`` or a list of such texts. What reads as a
    number in a text is one."""
    if isinstance(value, Mapping):
        for key, parameter in value.items():
            if parameter is not None and not isinstance(parameter, (bool, int, float, str)):
                raise OptionError(f"{key}: {parameter!r} is neither a number nor a text", option)
        return {str(key): parameter for key, parameter in value.items()}
    by_name: dict[str, Any] = {}
    for item in [value] if isinstance(value, str) else value or ():
        name, sign, text = item.partition("=")
        if not sign or not name.isidentifier():
            raise OptionError(f"{item!r} is not NAME=VALUE", option)
        by_name[name] = text
        for kind in (int, float):
            with suppress(ValueError):
                by_name[name] = kind(text)
                break
    return by_name


# -- places -------------------------------------------------------------------------------


def paths(values: Iterable[Paths]) -> list[str]:
    """Paths as text, of any mixture of texts, ``Path`` and lists of them."""
    listed: list[str] = []
    for value in values:
        if isinstance(value, (str, os.PathLike)):
            listed.append(_path(value, "paths"))
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
            listed += [_path(item, "paths") for item in value]
        else:
            raise OptionError(f"{value!r} is not a path, nor a list of paths", "paths")
    return listed


def path(value: AnyPath | None, option: str) -> str | None:
    """A path as text; None as it is."""
    return None if value is None else _path(value, option)


def _path(value: Any, option: str) -> str:
    name = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name:
        raise OptionError(f"{value!r} is not a path", option)
    return name


def align(value: Align, option: str) -> str:
    """A method of alignment, or the name of a file of offsets that exists.

    Raises:
        OptionError: it is neither.
    """
    name = _path(value, option)
    if name in get_args(AlignMethod) or isinstance(value, os.PathLike) or Path(name).exists():
        return name
    if os.sep in name or "." in name:  # a missing file; reading it raises the error
        return name
    methods = get_args(AlignMethod)
    raise OptionError(f"{unknown('method', name, methods)}, or a JSON file of offsets", option)


def limit(value: Limit | None, option: str) -> SizeLimit | None:
    """A size limit of bytes, or as it is; None for none."""
    from traceconv.writers.size_limit import SizeLimit

    if value is None or isinstance(value, SizeLimit):
        return value
    return SizeLimit(size(value, option))


def shard(value: Shard | None, option: str) -> tuple[int, int] | None:
    """(index, count); None as it is. Whether there is such a shard is judged by the merge."""
    if value is None:
        return None
    valid = "a share like 0/8 ... 7/8"
    if isinstance(value, str):
        match = _SHARD.match(value.strip())
        if not match or int(match[1]) >= int(match[2]):
            raise OptionError(f"{value!r} is not {valid}", option)
        return int(match[1]), int(match[2])
    if not isinstance(value, Sequence) or len(value) != 2:
        raise OptionError(f"{value!r} is not {valid}, nor (index, count)", option)
    return whole(value[0], option), whole(value[1], option)


def no_progress(done: int, total: int, label: str) -> None:
    """Report no progress."""


def progress(value: Progress | None, option: str) -> Progress:
    """The callable for progress; None reports no progress."""
    return no_progress if value is None else value
