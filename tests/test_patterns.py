"""Regular expressions over text that came from a file: each is fed its own worst case.

The worst case of a repetition is much of what it takes, and then something that does not fit. It is
built from the pattern itself. Patterns must also not take numbers without end out of a text, which
``int`` refuses: a group of digits has a most.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import re._constants as opcodes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import signal
from collections.abc import Iterator
from functools import cache

from effort import effort

import traceconv
from traceconv.core.patterns import lazy_regex

LENGTH = effort(3_000, 20_000)
"""Characters of a worst case. What is in proportion takes a few ms; its square a second."""

MOST_S = effort(25, 50) / 100

ENDLESS = (opcodes.MAX_REPEAT, opcodes.MIN_REPEAT, opcodes.POSSESSIVE_REPEAT)
INSIDE = {opcodes.CATEGORY_DIGIT: "0", opcodes.CATEGORY_SPACE: " ", opcodes.CATEGORY_WORD: "a"}
MISFITS = ("\x01", "\n", "")

PATTERN = (type(lazy_regex("")), re.Pattern)

SEARCHED = ("search", "finditer", "findall", "sub", "split", "subn")
"""Ways of use that try every place of a text."""

NOT_FROM_FILES = ("traceconv.api.", "traceconv.cli.", "traceconv.analysis.diff.gates")
"""Modules whose patterns read what the user typed."""


def modules():
    """All modules of the package."""
    for found in pkgutil.walk_packages(traceconv.__path__, "traceconv."):
        if ".native._" in found.name or found.name.endswith("__main__") or "skeleton" in found.name:
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError:  # an extra that is not here
            continue


@cache
def patterns():
    """Where each pattern is, itself, and whether every place of a text is tried with it."""
    seen = {}
    for module in modules():
        if module.__name__.startswith(NOT_FROM_FILES):
            continue
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            for number, one in enumerate(compiled(value)):
                ways = "|".join(SEARCHED)
                tried = re.search(rf"\b{name}\.({ways})\(", source) is not None
                among = any(f".{way}(" in source for way in ("search", "finditer", "findall"))
                searched = tried or (among and not isinstance(value, PATTERN))
                known = seen.get((one.pattern, one.flags))
                seen[one.pattern, one.flags] = (
                    known[0] if known else f"{module.__name__.removeprefix('traceconv.')}.{name}"
                    + (f"[{number}]" if number else ""),
                    one,
                    searched or bool(known and known[2]),
                )  # fmt: skip
    return sorted(seen.values(), key=lambda one: one[0])


def compiled(value: object, depth: int = 2) -> Iterator[re.Pattern]:
    if isinstance(value, PATTERN):
        yield re.compile(value.pattern, value.flags)
    elif depth and isinstance(value, dict):
        for one in (*value, *value.values()):
            yield from compiled(one, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from compiled(one, depth - 1)


def least(tree) -> str:
    """A short text that fits, as far as such a text is easily found."""
    text = ""
    for op, value in tree:
        if op is opcodes.LITERAL:
            text += chr(value)
        elif op is opcodes.NOT_LITERAL:
            text += "b" if value == ord("a") else "a"
        elif op is opcodes.ANY:
            text += "a"
        elif op is opcodes.IN:
            text += member(value)
        elif op is opcodes.BRANCH:
            text += least(value[1][0])
        elif op is opcodes.SUBPATTERN:
            text += least(value[3])
        elif op is opcodes.ATOMIC_GROUP:
            text += least(value)
        elif op in ENDLESS:
            text += least(value[2]) * value[0]
    return text


def member(items) -> str:
    if items[0][0] is opcodes.NEGATE:
        return next(c for c in "a0 _{x" if not any(c in span(one) for one in items[1:]))
    return span(items[0])[0]


def span(item) -> str:
    op, value = item
    if op is opcodes.LITERAL:
        return chr(value)
    if op is opcodes.RANGE:
        return "".join(map(chr, range(value[0], min(value[1], value[0] + 128) + 1)))
    return INSIDE.get(value, "~")


def worst(pattern: re.Pattern) -> Iterator[str | bytes]:
    """Texts that make it try again and again."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    bodies = list(repeated(tree, ""))
    for before, body in bodies:
        piece = least(body) or "a"
        for lead in {before, ""}:
            for after in MISFITS:
                text = lead + piece * (LENGTH // len(piece)) + after
                yield as_given(text, pattern)
    lead = least(tree)[:-1]
    if lead:
        text = lead * (LENGTH // len(lead))
        yield as_given(text, pattern)


def as_given(text: str, pattern: re.Pattern) -> str | bytes:
    return text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text


def repeated(tree, before: str):
    """What is repeated without end, with a text that leads there."""
    for op, value in tree:
        if op in ENDLESS:
            if value[1] is opcodes.MAXREPEAT:
                yield before, value[2]
            yield from repeated(value[2], before)
        elif op is opcodes.SUBPATTERN:
            yield from repeated(value[3], before)
        elif op is opcodes.ATOMIC_GROUP:
            yield from repeated(value, before)
        elif op is opcodes.BRANCH:
            for one in value[1]:
                yield from repeated(one, before)
        before += least([(op, value)])


EXCUSED = {
    "readers.event_log.mapping._ATTRIBUTE": "the format of a log, which the user gives",
    "readers.event_log.mapping._ITEM": "a mapping, which the user gives",
    "readers.ascend.tables.names.USES[4]": "asked of whole names only",
    "readers.ascend.tables.names.USES[5]": "asked of whole names only",
    "readers.ascend.tables.names.USES[7]": "asked of whole names only",
}
"""Patterns that may be slow, and why that cannot hurt."""


def test_there_are_patterns():
    """They are found, so that the next test says something."""
    assert len(patterns()) > 150
    assert set(EXCUSED) <= {name for name, _, _ in patterns()}


class _Slow(Exception):
    pass


def _late(number, frame):
    raise _Slow


def test_no_text_takes_more_than_its_share():
    """Time in proportion to the text, whatever it is made of. The usual run takes every second
    pattern."""
    before = signal.signal(signal.SIGVTALRM, _late)
    try:
        slow = {
            name: text for name, *how in patterns()[:: effort(2, 1)] if (text := _late_at(*how))
        }
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert {name: text for name, text in slow.items() if text and name not in EXCUSED} == {}


def _late_at(pattern, searched):
    """A text that takes too long, shortened; "" if none does."""
    for text in worst(pattern):
        try:
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
                pattern.match(text)
                pattern.fullmatch(text)
                if searched:
                    pattern.search(text)
            finally:  # within the other: the signal may come here, too
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except _Slow:
            return f"{text[:40]!r}...{text[-5:]!r}"
    return ""


ANY_LENGTH = {
    "core.clock._NUMBER": "digits are added up to 19 by hand",
    "find.identity._NUMBER": "cut to nine digits",
    "readers.shared.trace_events.salvage._PIECE": "stays text",
    "readers.shared.trace_events.tables._WHOLE": "stays text",
    "readers.ascend.msprof._SLICE": "stamps that are compared as text",
    "readers.ascend.msprof._STEPS": "stamps that are compared as text",
    "readers.ascend.msprof._WHOLE": "stamps that are compared as text",
    "readers.ascend.tables.load._STEP": "stays text",
    "readers.paddle.old._TIME": "stays text",
}
"""Groups of digits without a most, which become no int."""


def test_numbers_in_texts_have_a_most():
    """Python's int refuses thousands of digits: they must not reach it."""
    found = {name for name, pattern, _ in patterns() if any(map(endless, groups(pattern)))}
    assert found == set(ANY_LENGTH)


_DIGIT = ("[(IN, [(CATEGORY, CATEGORY_DIGIT)])]", "[(IN, [(RANGE, (48, 57))])]")


def groups(pattern):
    """The parts of a pattern that are told apart."""

    def inner(tree):
        for op, value in tree:
            if op is opcodes.SUBPATTERN:
                if value[0] is not None:
                    yield value[3]
                yield from inner(value[3])
            elif op in ENDLESS:
                yield from inner(value[2])
            elif op is opcodes.ATOMIC_GROUP:
                yield from inner(value)
            elif op is opcodes.BRANCH:
                for one in value[1]:
                    yield from inner(one)

    return inner(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))


def endless(group) -> bool:
    """Whether a group is digits alone, as many as there are."""
    digits = all(op in ENDLESS or (op, v) == (opcodes.LITERAL, ord("-")) for op, v in group)
    inside = [v[2] for op, v in group if op in ENDLESS and v[1] is opcodes.MAXREPEAT]
    return digits and any(str(body) in _DIGIT for body in inside)
