"""The mapping from the columns of a log to the fields of events, and its binding to one log.

As text: ``name=Name,ts=Start (ns):ns,device?=Device/\\((\\d+)\\)/,kind='compute'``

* ``target=column`` takes a column (JSON lines: a key) as it is; ``target?=column`` if it is there;
* ``column:unit`` says the unit of a time, ``column (*)`` takes it from the brackets of the header;
* ``column/regex/`` takes what the one group finds, and nothing where it finds nothing;
* ``target='text'`` is the same for every record;
* ``ignore=column`` leaves a column out; every other column becomes an argument;
* ``line=/regex/`` reads lines of text: its named groups are the columns, and a group named like a
  target is that target; ``line='%(asctime)s %(message)s'`` is a format of Python's logging.

Times are numbers or ISO 8601.

As a file: a JSON object of the same keys. A value may also be an object with ``column``, ``unit``
and ``regex``, or with ``constant``; ``ignore`` is a list; ``preset`` names one to build on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from traceconv.core.errors import OptionError, SourceError
from traceconv.core.patterns import compiled, lazy_regex
from traceconv.readers.shared.numbers import ISO_TIME

TIMES = ("ts", "dur", "end")
TARGETS = (
    "name", *TIMES, "ph", "rank", "graph", "step", "kind", "stream", "thread", "plane", "device",
    "process", "title", "value", "bytes", "args",
)  # fmt: skip
SETTINGS: dict[str, tuple[str, ...]] = {
    "unit": ("s", "ms", "us", "ns", "row"),
    "clock": ("unix", "relative"),
    "host": (),
    "comment": (),
}
"""Settings of a whole log with their valid values; () = any."""

UNITS = {
    "s": "s", "sec": "s", "ms": "ms", "msec": "ms", "us": "us", "usec": "us", "µs": "us",
    "μs": "us", "ns": "ns", "nsec": "ns",
}  # fmt: skip
"""Units as headers spell them."""

_ITEM = lazy_regex(
    r"\s*(?P<target>[A-Za-z_][\w.]*)(?P<optional>\?)?\s*="
    r"\s*(?P<value>'[^']*'|[^,/]*/(?:\\.|[^/\\])*/(?=\s*(?:,|\Z))|.+?)\s*"
    r"(?:,(?=\s*[A-Za-z_][\w.]*\??\s*=)|\Z)",
    re.DOTALL,
)
_COLUMN = lazy_regex(r"(?P<column>.+?)(?::(?P<unit>s|ms|us|ns))?(?:/(?P<regex>.+)/)?\Z", re.DOTALL)


class Field(msgspec.Struct, frozen=True):
    """Where one target comes from: a column, or a constant."""

    target: str
    column: str = ""
    unit: str = ""
    regex: re.Pattern[str] | None = None
    constant: str | None = None
    optional: bool = False


class Mapping(msgspec.Struct, frozen=True):
    """A whole mapping. ``name`` is its name in messages."""

    name: str
    fields: tuple[Field, ...] = ()
    settings: Dict[str, str] = {}
    ignored: tuple[str, ...] = ()
    line: re.Pattern[str] | None = None

    def over(self, base: Mapping) -> Mapping:
        """This mapping, completed by the fields and settings of ``base``."""
        targets = {f.target for f in self.fields}
        inherited = tuple(f for f in base.fields if f.target not in targets)
        settings = {**base.settings, **self.settings}
        return msgspec.structs.replace(
            self, fields=(*inherited, *self.fields), settings=settings,
            ignored=(*base.ignored, *self.ignored), line=self.line or base.line,
        )  # fmt: skip

    def required(self) -> list[str]:
        """The columns that must be there."""
        return [f.column for f in self.fields if f.constant is None and not f.optional]


def parsed(text: str, name: str = "`mapping`") -> Mapping:
    """A mapping from its text.

    Raises:
        OptionError: it is invalid; the message names the part.
    """
    items: list[tuple[str, Any]] = []
    offset = 0
    while offset < len(text):
        match = _ITEM.match(text, offset)
        if not match:
            raise OptionError(
                f"{name}: cannot understand {text[offset : offset + 40]!r}; see {_EXAMPLE}"
            )
        items.append((match["target"] + (match["optional"] or ""), match["value"]))
        offset = match.end()
    return _mapping(name, items)


def from_file(path: str, presets: Dict[str, Mapping]) -> Mapping:
    """A mapping from a JSON file.

    Raises:
        SourceError: it cannot be read.
        OptionError: it is not a mapping.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as e:
        raise SourceError(f"`mapping={path!r}`: cannot read: {e.strerror or e}") from e
    except (ValueError, RecursionError) as e:
        raise OptionError(f"`mapping={path!r}`: not JSON: {e}") from e
    if not isinstance(document, dict):
        raise OptionError(
            f'`mapping={path!r}`: not an object such as {{"name": "Name", "ts": "Start"}}'
        )
    base = document.pop("preset", None)
    ignored = document.pop("ignore", [])
    if not isinstance(ignored, list) or (base is not None and base not in presets):
        raise OptionError(
            f"`mapping={path!r}`: ignore is a list, preset one of {', '.join(presets)}"
        )
    items = [*document.items(), *(("ignore", str(column)) for column in ignored)]
    mapping = _mapping(path, items)
    return mapping.over(presets[base]) if base is not None else mapping


_EXAMPLE = "name=Name,ts=Start (ns):ns,dur=Length,kind='compute'"


def _mapping(name: str, items: Sequence[tuple[str, Any]]) -> Mapping:
    fields, settings, ignored = [], {}, []
    line: re.Pattern[str] | None = None
    for key, value in items:
        target = key.removesuffix("?")
        if target == "ignore":
            ignored.append(str(value))
        elif target == "line":
            line = _line(name, str(value))
        elif target in SETTINGS:
            settings[target] = setting = str(value).strip("'")
            if SETTINGS[target] and setting not in SETTINGS[target]:
                choices = ", ".join(SETTINGS[target])
                raise OptionError(f"{name}: {target} {setting!r}: must be one of {choices}")
        elif target in TARGETS or target.startswith("args."):
            fields.append(_field(name, target, value, key.endswith("?")))
        else:
            choices = ", ".join((*TARGETS, "args.<key>", *SETTINGS, "line", "ignore"))
            raise OptionError(f"{name}: no field {target!r}; there are: {choices}")
    if line is not None:
        used = {bound_field.target for bound_field in fields} | {
            bound_field.column for bound_field in fields
        }
        unused_groups = [group for group in line.groupindex if group not in used]
        fields += [Field("ts", g, _LOGGED.get(g, "")) for g in unused_groups if g in _LOGGED][:1]
        fields += [
            Field(g, g, optional=g not in ("ts", "name")) for g in unused_groups if g in TARGETS
        ]
    return Mapping(name, tuple(fields), settings, tuple(ignored), line)


_LOGGED = {"created": "s", "relativeCreated": "ms"}
"""Times of Python's logging that are numbers, with their units."""

_ATTRIBUTE = lazy_regex(r"%%|%\((\w+)\)[-#0 +]*\d*(?:\.\d+)?([a-zA-Z])")
_MILLISECONDS = lazy_regex(r"(%\(asctime\)s)[.,]%\(msecs\)0?3(?:\.0)?[df]")
"""A time whose milliseconds are a separate attribute."""


def _line(name: str, text: str) -> re.Pattern[str]:
    """The pattern of a line of text: a regular expression between slashes, or a format of logging.

    Raises:
        OptionError: it is neither of these.
    """
    text = text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
    if "%(" in text and not text.startswith("/"):
        text = _of_format(text)
    elif len(text) > 1 and text[0] == text[-1] == "/":
        text = text[1:-1].replace(r"\/", "/")
    try:
        pattern = compiled(text)
    except re.error as e:
        raise OptionError(f"{name}: line: not a regular expression: {e}") from e
    if not pattern.groupindex:
        raise OptionError(
            f"{name}: line is neither a regular expression with named groups, "
            "/(?P<ts>...) (?P<name>...)/, nor a format of Python's logging, "
            "'%(asctime)s %(levelname)s %(message)s'"
        )
    return pattern


def _of_format(text: str) -> str:
    """A format of Python's logging as a regular expression; its attributes become groups."""
    parts, offset, seen = ["^"], 0, set()
    text = _MILLISECONDS.sub(r"\1", text)
    for match in _ATTRIBUTE.finditer(text):
        parts.append(re.escape(text[offset : match.start()]))
        offset = match.end()
        word, kind = match[1], match[2]
        if word is None:
            parts.append("%")
            continue
        group = _GROUPS.get(word, word)
        inner = (
            ISO_TIME
            if word == "asctime"
            else _VALUES.get(kind, ".*" if offset == len(text) else ".*?")
        )
        is_group = group.isidentifier() and group not in seen
        seen.add(group)
        parts.append(rf"\s*(?P<{group}>{inner})\s*" if is_group else f"(?:{inner})")
    return "".join([*parts, re.escape(text[offset:]), "$"])


_GROUPS = {"asctime": "ts", "message": "name", "name": "logger", "threadName": "thread",
           "thread": "thread_id", "levelname": "level"}  # fmt: skip
"""Attributes of logging with another name here."""

_VALUES = {"d": r"-?\d+", "f": r"-?\d+(?:\.\d+)?"}


def _field(name: str, target: str, value: Any, optional: bool) -> Field:
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == "'":
        return Field(target, constant=value[1:-1])
    parts = _COLUMN.match(value).groupdict() if isinstance(value, str) and value else value  # type: ignore[union-attr]
    if not isinstance(parts, dict):
        raise OptionError(f"{name}: {target} is neither a column nor a 'constant'")
    if isinstance(parts.get("constant"), str):
        return Field(target, constant=parts["constant"])
    column, unit = parts.get("column"), parts.get("unit") or ""
    if not isinstance(column, str) or not column:
        raise OptionError(f"{name}: {target} names no column")
    if unit and (target not in TIMES or unit not in UNITS):
        raise OptionError(f"{name}: {target}: unit {unit!r}: only ts, dur and end have one")
    return Field(target, column, unit, _regex(name, target, parts.get("regex")), optional=optional)


def _regex(name: str, target: str, text: Any) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        pattern = compiled(text, re.DOTALL)
    except (re.error, TypeError) as e:
        raise OptionError(f"{name}: {target}: not a regular expression: {e}") from e
    if pattern.groups != 1:
        raise OptionError(f"{name}: {target}: the regular expression needs one group, in brackets")
    return pattern


# -- binding to the columns of one log ------------------------------------------------------


class Bound(msgspec.Struct, frozen=True):
    """A field with its column as the log spells it."""

    target: str
    column: str
    unit: str = ""
    regex: re.Pattern[str] | None = None


class Binding(msgspec.Struct, frozen=True):
    """A mapping on the columns of one log.

    Attributes:
        found:     targets with a column.
        constants: targets with the same value for every record.
        ignored:   columns to leave out.
        settings:  as in the mapping.
    """

    found: tuple[Bound, ...]
    constants: Dict[str, str]
    ignored: frozenset[str]
    settings: Dict[str, str]

    def column(self, target: str) -> Bound | None:
        """The column of ``target``, if it has one."""
        return next((b for b in self.found if b.target == target), None)


def bound(mapping: Mapping, columns: Sequence[str]) -> tuple[Binding, list[str]]:
    """``mapping`` on ``columns``, and the required columns that are missing."""
    bindings, missing, constants = [], [], {}
    for wanted_field in mapping.fields:
        if wanted_field.constant is not None:
            constants[wanted_field.target] = wanted_field.constant
            continue
        column, unit = _match(wanted_field.column, columns)
        if column is not None:
            bindings.append(
                Bound(
                    wanted_field.target,
                    column,
                    UNITS.get(wanted_field.unit or unit, ""),
                    wanted_field.regex,
                )
            )
        elif not wanted_field.optional:
            missing.append(wanted_field.column)
    ignored = [_match(pattern, columns)[0] for pattern in mapping.ignored]
    return (
        Binding(tuple(bindings), constants, frozenset(c for c in ignored if c), mapping.settings),
        missing,
    )


def _match(requested: str, columns: Sequence[str]) -> tuple[str | None, str]:
    """The column that ``requested`` matches, and the unit in its brackets."""
    if requested in columns:
        return requested, ""
    stem = requested.removesuffix("(*)").rstrip()
    for column in columns:
        if requested.endswith("(*)"):
            head, _, unit = column.strip().rstrip(")").rpartition("(")
            if head.strip().casefold() == stem.casefold() and unit in UNITS:
                return column, unit
        elif column.strip().casefold() == requested.casefold():
            return column, ""
    return None, ""
