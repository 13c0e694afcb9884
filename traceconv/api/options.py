"""What people type, as values: one parser for each kind of argument.

The command line uses the same parsers. Every parser takes a value of any type and the name of the
argument, and raises :class:`~traceconv.core.errors.OptionError` for what it does not understand.
Values that a parser returned are accepted as they are.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args

from traceconv.core.choices import unknown
from traceconv.core.clock import INT64_MAX, to_ns
from traceconv.core.errors import ClockError, OptionError
from traceconv.core.patterns import lazy_regex

if TYPE_CHECKING:
    from traceconv.core.job_shape import ByCoordinates
    from traceconv.run.settings import (
        AlignMethod,
        EngineName,
        LayerName,
        Layout,
        MergeOptions,
        Mode,
        OverLimit,
        RunOptions,
        Selection,
    )
    from traceconv.writers.output import Progress
    from traceconv.writers.size_limit import SizeLimit

AnyPath: TypeAlias = "str | os.PathLike[str]"
"""A file or folder; also a URL or a pattern, as text."""

Paths: TypeAlias = "AnyPath | Iterable[AnyPath]"
"""One or several of them."""

Numbers: TypeAlias = "int | str | Iterable[int]"
"""``3``, ``[0, 2]``, ``range(4)``, ``"0-7,12"`` or ``"all"``."""

Ranks: TypeAlias = "Numbers | Mapping[str, Numbers] | ByCoordinates"
"""Numbers of ranks, or coordinates: ``"tp=0,pp=1"``, ``{"tp": 0, "pp": 1}``."""

Names: TypeAlias = "str | Iterable[str]"
"""``"kernel"``, ``"step,overlap"`` or a list."""

Window: TypeAlias = "str | tuple[int | None, int | None]"
"""``"1.2s:1.5s"``, ``"300ms:"`` or (start, end) in ns; None = open."""

Size: TypeAlias = "int | str"
"""Bytes, or ``"200M"`` in units of 1024."""

Length: TypeAlias = "int | str"
"""Nanoseconds, or ``"50us"``."""

Limit: TypeAlias = "SizeLimit | int | str"
"""A size limit, or bytes as of :data:`Size`."""

Layers: TypeAlias = "LayerName | Iterable[LayerName]"
"""``"device"`` or a list; also ``"device,comm"``."""

Align: TypeAlias = "AlignMethod | os.PathLike[str]"
"""A method, or a JSON file of offsets: a ``Path``, or its name as text."""

Shard: TypeAlias = "str | tuple[int, int]"
"""``"2/8"`` or (2, 8), from 0."""

MAX_RANGE = 1_000_000
"""More numbers than this in one range are taken for a mistake."""

_NUMBERS = 'numbers like 3, [0, 2], range(4), "0-7,12" or "all"'
_RANGE = lazy_regex(r"(\d{1,18})(?:\s*-\s*(\d{1,18}))?\Z")
_AXIS = lazy_regex(r"[a-z][a-z_]*\Z")
_SIZE = lazy_regex(r"(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?)(?:i?B)?\Z", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_TIME = lazy_regex(r"([+-]?\d[\d.]*(?:[eE][+-]?\d+)?)\s*(s|ms|us|µs|ns)\Z")
_SHARD = lazy_regex(r"(\d{1,6})/(\d{1,6})\Z")
_THRESHOLD = lazy_regex(r"([a-z-]+(?:\.[a-z-]+)?)\s*=\s*(-?\d+(?:\.\d+)?)\Z")


# -- numbers ------------------------------------------------------------------------------


def numbers(value: Numbers | None, option: str) -> tuple[int, ...] | None:
    """Whole numbers from 0, ascending, each once; None for all.

    Raises:
        OptionError: it is none of what :data:`Numbers` lists.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() == "all"):
        return None
    if isinstance(value, str):
        found = {number for part in value.split(",") for number in _span(value, part, option)}
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        found = {_whole(one, option, _NUMBERS) for one in value}
    else:
        found = {_whole(value, option, _NUMBERS)}
    if not found or min(found) < 0:
        what = f"{min(found)} is less than 0" if found else "names none; leave it out for all"
        raise OptionError(what, option)
    return tuple(sorted(found))


def _span(text: str, part: str, option: str) -> range:
    match = _RANGE.match(part.strip())
    if match is None:
        raise OptionError(f"{text!r} is not a list like 0-7,12, nor all", option)
    first, last = int(match[1]), int(match[2] or match[1])
    if not 0 <= last - first <= MAX_RANGE:
        raise OptionError(f"{part.strip()!r} is not a range from low to high", option)
    return range(first, last + 1)


def _whole(value: Any, option: str, valid: str = "a whole number") -> int:
    """A whole number of any integer type (numpy's too), but no truth value."""
    if isinstance(value, bool):
        raise OptionError(f"{value!r} is not {valid}", option)
    try:
        return operator.index(value)
    except TypeError as e:
        raise OptionError(f"{value!r} is not {valid}", option) from e


def count(value: Any, option: str) -> int | None:
    """A number from 1, maybe as text; ``"1M"`` in units of 1000; None as it is."""
    return None if value is None else _amount(value, 1000, option, "a number like 20, 10K or 1M")


def size(value: Size | None, option: str) -> int | None:
    """Bytes, from 1; None as it is."""
    valid = "a size like 800K, 200M or 2G, or a number of bytes"
    return None if value is None else _amount(value, 1024, option, valid)


def _amount(value: Any, unit: int, option: str, valid: str) -> int:
    if isinstance(value, str):
        match = _SIZE.match(value.strip())
        if match is None:
            raise OptionError(f"{value!r} is not {valid}", option)
        whole, _, decimals = match[1].partition(".")
        scale: int = unit ** _POWERS[match[2].upper()]
        number = int(whole + decimals) * scale // 10 ** len(decimals)
    else:
        number = _whole(value, option, valid)
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
        wanted = {str(axis): numbers(some, option) for axis, some in value.items()}
    elif isinstance(value, str) and "=" in value:
        texts: dict[str, list[str]] = {}
        axis = ""
        for part in value.split(","):
            name, equals, rest = part.rpartition("=")
            axis = name.strip().lower() if equals else axis
            if not _AXIS.fullmatch(axis) or (equals and axis in texts):
                raise OptionError(f"{value!r} is not a list like tp=0,pp=1-3", option)
            texts.setdefault(axis, []).append(rest)
        wanted = {axis: numbers(",".join(some), option) for axis, some in texts.items()}
    else:
        return numbers(value, option)
    if not wanted or None in wanted.values():
        raise OptionError(f"{value!r} names no coordinates, like tp=0,pp=1-3", option)
    return ByCoordinates({axis: some for axis, some in wanted.items() if some is not None})


def rank_sides(
    value: Ranks | None, option: str
) -> tuple[tuple[int, ...] | ByCoordinates | None, tuple[int, ...] | ByCoordinates | None, bool]:
    """Ranks before and after, as :func:`sides`."""
    if isinstance(value, str) and ":" in value:
        before, _, after = value.partition(":")
        return ranks(before.strip(), option), ranks(after.strip(), option), True
    return ranks(value, option), ranks(value, option), False


def sides(
    value: Numbers | None, option: str
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None, bool]:
    """Numbers before and after, of text like ``"1-5:6-10"``; without a colon the same for both.

    Returns:
        Both, None for all, and whether there was a colon.
    """
    if isinstance(value, str) and ":" in value:
        before, _, after = value.partition(":")
        return numbers(before.strip(), option), numbers(after.strip(), option), True
    same = numbers(value, option)
    return same, same, False


# -- times --------------------------------------------------------------------------------


def window(value: Window | None, option: str) -> tuple[int | None, int | None] | None:
    """(start, end) in ns; None = open.

    Raises:
        OptionError: it is no window, or ends before it starts.
    """
    if value is None:
        return None
    if isinstance(value, str):
        first, colon, last = value.partition(":")
        if not colon or not (first.strip() or last.strip()):
            valid = "a window like 1.2s:1.5s, 300ms: or :2s"
            raise OptionError(f"{value!r} is not {valid}", option)
        start, end = _time(first, option), _time(last, option)
    else:
        valid = 'a window like "1.2s:1.5s", or (start, end) in whole ns'
        if not isinstance(value, Sequence) or len(value) != 2:
            raise OptionError(f"{value!r} is not {valid}", option)
        start, end = (None if one is None else _stamp(one, option, valid) for one in value)
    if start is not None and end is not None and start >= end:
        raise OptionError(f"{value!r} ends before it starts", option)
    return start, end


def _stamp(value: Any, option: str, valid: str) -> int:
    """A time as ns, or as text with its unit."""
    found = _time(value, option) if isinstance(value, str) else _whole(value, option, valid)
    if found is None or abs(found) > INT64_MAX:
        raise OptionError(f"{value!r} is not {valid}", option)
    return found


def _time(text: str, option: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    match = _TIME.match(text)
    if match is None:
        raise OptionError(f"{text!r} is not a time with its unit (s, ms, us, ns)", option)
    try:
        return to_ns(match[1], "us" if match[2] == "µs" else match[2])
    except ClockError as e:
        raise OptionError(str(e), option) from e


def length(value: Length | None, option: str) -> int | None:
    """ns, from 0; None as it is."""
    if value is None:
        return None
    found = _stamp(value, option, "a length like 50us, or whole ns")
    if found < 0:
        raise OptionError(f"{value!r} is less than 0", option)
    return found


def percent(value: float | str, option: str) -> float:
    """A share in percent, from 0 to 100, also as text: ``1.5`` or ``"1.5%"``."""
    try:
        found = float(value.removesuffix("%") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        found = math.nan
    if isinstance(value, bool) or not 0 <= found <= 100:
        raise OptionError(f"{value!r} is no share in percent, from 0 to 100", option)
    return found


# -- words --------------------------------------------------------------------------------


def choice(value: Any, choices: Iterable[str], option: str) -> str:
    """One of some words.

    Raises:
        OptionError: it is none of them; the message lists them.
    """
    every = tuple(choices)
    if not isinstance(value, str) or value not in every:
        raise OptionError(unknown("choice", value, every), option)
    return value


def words(value: Names | None, option: str) -> tuple[str, ...] | None:
    """Words, as written; None as it is."""
    if value is None:
        return None
    valid = 'a name, "a,b" or a list of names'
    if isinstance(value, str):
        return tuple(word for part in value.split(",") if (word := part.strip()))
    if not isinstance(value, Iterable):
        raise OptionError(f"{value!r} is not {valid}", option)
    found = tuple(value)
    for word in found:
        if not isinstance(word, str):
            raise OptionError(f"{word!r} is not {valid}", option)
    return found


def layers(value: Layers | None, option: str) -> tuple[LayerName, ...] | None:
    """Names of layers, each once; None as it is."""
    from traceconv.run.settings import LayerName

    found = words(cast("Names | None", value), option)
    for word in found or ():
        if word not in get_args(LayerName):
            raise OptionError(unknown("layer", word, get_args(LayerName)), option)
    return None if found is None else cast("tuple[LayerName, ...]", tuple(dict.fromkeys(found)))


def kept_args(value: Names | None, option: str) -> tuple[str, ...] | None:
    """Keys of arguments; None for all, () for none."""
    if isinstance(value, str) and value.strip() in ("all", "none"):
        return None if value.strip() == "all" else ()
    return words(value, option)


def pattern(value: str | None, option: str) -> str | None:
    """A regular expression that can be compiled; None as it is."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise OptionError(f"{value!r} is not a regular expression as text", option)
    try:
        re.compile(value)
    except re.error as e:
        raise OptionError(f"{value!r} is not a regular expression: {e}", option) from e
    return value


def text(value: Any, option: str) -> str | None:
    """Text; None as it is."""
    if value is not None and not isinstance(value, str):
        raise OptionError(f"{value!r} is not text", option)
    return value


def thresholds(
    value: Mapping[str, float] | str | Iterable[str] | None, option: str
) -> dict[str, float]:
    """Thresholds by name: of ``{"long-tail": 30}``, ``"long-tail=30"`` or a list of such texts."""
    if not isinstance(value, Mapping):
        return dict(_threshold(part, option) for part in words(value, option) or ())
    for key, number in value.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise OptionError(f"{key}: {number!r} is not a number", option)
        if not math.isfinite(number):
            raise OptionError(f"{key}: {number} is no number to compare with", option)
    return {str(key): float(number) for key, number in value.items()}


def _threshold(part: str, option: str) -> tuple[str, float]:
    match = _THRESHOLD.match(part.strip())
    if match is None:
        raise OptionError(f"{part!r} is not RULE=NUMBER or RULE.NAME=NUMBER", option)
    return match[1], float(match[2])


# -- places -------------------------------------------------------------------------------


def paths(values: Iterable[Paths]) -> list[str]:
    """Paths as text, of any mixture of texts, ``Path`` and lists of them."""
    found: list[str] = []
    for value in values:
        if isinstance(value, (str, os.PathLike)):
            found.append(_path(value, "paths"))
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
            found += [_path(one, "paths") for one in value]
        else:
            raise OptionError(f"{value!r} is not a path, nor a list of paths", "paths")
    return found


def path(value: AnyPath | None, option: str) -> str | None:
    """A path as text; None as it is."""
    return None if value is None else _path(value, option)


def _path(value: Any, option: str) -> str:
    found = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(found, str) or not found:
        raise OptionError(f"{value!r} is not a path", option)
    return found


# -- options that are a choice ------------------------------------------------------------


def mode(value: Mode | None, option: str = "mode") -> Mode:
    """A mode; None is "source"."""
    from traceconv.run.settings import Mode

    return cast("Mode", choice("source" if value is None else value, get_args(Mode), option))


def layout(value: Layout, option: str = "layout") -> Layout:
    """How lanes are grouped."""
    from traceconv.run.settings import Layout

    return cast("Layout", choice(value, get_args(Layout), option))


def align(value: Align, option: str = "align") -> str:
    """A method of alignment, or the name of a file of offsets that exists.

    Raises:
        OptionError: it is neither.
    """
    from traceconv.run.settings import AlignMethod

    found = _path(value, option)
    if found in get_args(AlignMethod) or isinstance(value, os.PathLike) or Path(found).exists():
        return found
    if os.sep in found or "." in found:  # a file that is missing: reading it says so
        return found
    methods = get_args(AlignMethod)
    raise OptionError(f"{unknown('method', found, methods)}, or a JSON file of offsets", option)


def engine(value: EngineName, option: str = "engine") -> EngineName:
    """Who runs the workers."""
    from traceconv.run.settings import EngineName

    return cast("EngineName", choice(value, get_args(EngineName), option))


def limit(value: Limit | None, over_limit: OverLimit = "reduce") -> SizeLimit | None:
    """A size limit; None for none.

    Args:
        over_limit: what is done at the limit, where ``value`` is a size only.
    """
    from traceconv.run.settings import OverLimit
    from traceconv.writers.size_limit import SizeLimit

    policy = choice(over_limit, get_args(OverLimit), "over_limit")
    if value is None:
        return None
    if isinstance(value, SizeLimit):
        if policy not in ("reduce", value.policy):
            raise OptionError(f"{policy!r}, but `limit` says {value.policy!r}", "over_limit")
        return value
    return SizeLimit(size(value, "limit"), None, policy)


def shard(value: Shard | None, option: str = "shard") -> tuple[int, int] | None:
    """(index, count); None as it is. Whether there is such a shard is judged by the merge."""
    if value is None:
        return None
    valid = "a share like 0/8 ... 7/8"
    if isinstance(value, str):
        match = _SHARD.match(value.strip())
        if match is None or int(match[1]) >= int(match[2]):
            raise OptionError(f"{value!r} is not {valid}", option)
        return int(match[1]), int(match[2])
    if not isinstance(value, Sequence) or len(value) != 2:
        raise OptionError(f"{value!r} is not {valid}, nor (index, count)", option)
    return _whole(value[0], option), _whole(value[1], option)


# -- together -----------------------------------------------------------------------------


def selection(
    whole: Selection | None = None,
    *,
    ranks: Ranks | None = None,
    graphs: Numbers | None = None,
    steps: Numbers | None = None,
    time: Window | None = None,
    layers: Layers | None = None,
    exclude: str | None = None,
) -> Selection:
    """What is kept.

    Args:
        whole: all of it at once; the others are left out then.

    Raises:
        OptionError: a value is not understood, or both ways are used at once.
    """
    from traceconv.run.settings import Selection

    if whole is not None:
        if not isinstance(whole, Selection):
            raise OptionError(f"{whole!r} is not a traceconv.Selection", "selection")
        if any(one is not None for one in (ranks, graphs, steps, time, layers, exclude)):
            why = "is given beside `ranks`, `graphs`, `steps`, `time`, `layers` or `exclude`; "
            raise OptionError(why + "put these into it", "selection")
        return selection(**vars(whole))
    return Selection(
        _ranks(ranks, "ranks"),
        numbers(graphs, "graphs"),
        numbers(steps, "steps"),
        window(time, "time"),
        _layers(layers, "layers"),
        pattern(exclude, "exclude"),
    )


_layers = layers
_ranks = ranks


def refuse_others(kept: Selection, known: Sequence[str]) -> None:
    """Refuse what a verb cannot select by.

    Raises:
        OptionError: something else than ``known`` is selected.
    """
    more = [name for name, value in vars(kept).items() if value is not None and name not in known]
    if more:
        names = ", ".join(f"`{name}`" for name in more)
        raise OptionError(f"{names} cannot be selected here, only {', '.join(known)}", "selection")


def merge_options(whole: MergeOptions | None, given: MergeOptions) -> MergeOptions:
    """``given``, or all of it at once, checked alike.

    Raises:
        OptionError: a value is not understood, or both ways are used at once.
    """
    from traceconv.run.settings import MergeOptions

    if whole is None:
        return given
    if not isinstance(whole, MergeOptions):
        raise OptionError(f"{whole!r} is not a traceconv.MergeOptions", "merge_options")
    if given != MergeOptions():
        raise OptionError("is given beside arguments that it has, too", "merge_options")
    return replace(
        whole,
        mode=mode(whole.mode),
        selection=selection(whole.selection),
        args=kept_args(whole.args, "args"),
        align=align(cast("Align", whole.align)),
        align_max_error_ns=length(whole.align_max_error_ns, "align_max_error_ns"),
        limit=limit(whole.limit),
        comm_patterns=words(whole.comm_patterns, "comm_patterns") or (),
        step_marker=pattern(whole.step_marker, "step_marker"),
    )


def run_options(
    jobs: int | None = None,
    mem_limit: Size | None = None,
    engine: EngineName = "local",
    engine_address: str | None = None,
    allow_missing_ranks: bool = False,
    progress: Progress | None = None,
) -> RunOptions:
    """Who does the work."""
    from traceconv.run.settings import RunOptions
    from traceconv.writers.output import silent

    workers = None if jobs is None else _whole(jobs, "jobs", "a number of workers")
    if workers is not None and workers < 1:
        raise OptionError(f"{workers} workers do nothing; pass 1 or more", "jobs")
    return RunOptions(
        workers,
        size(mem_limit, "mem_limit"),
        _engine(engine),
        text(engine_address, "engine_address"),
        bool(allow_missing_ranks),
        silent if progress is None else progress,
    )


_engine = engine
