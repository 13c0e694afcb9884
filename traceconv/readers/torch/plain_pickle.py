"""Pickles of plain values, by Python's own unpickler with everything else taken out of it.

Python's unpickler runs what a pickle tells it to. Here it has only the instructions that make
dicts, lists, tuples, text, bytes, numbers, booleans and None; every other one is refused by its
name: none refers to a class or a function, calls anything, or sets attributes.

A hostile pickle is bounded, too: nothing is longer than the bytes that are left, integers have 16
bytes at most, keys are text or integers, values nest :data:`DEEPEST` levels at most and not into
themselves. A value that is referred to many times is one object; who writes it out bounds that
(:func:`json_text`, :func:`label`).
"""

from __future__ import annotations

import io
import math
import pickle  # only the class below uses it; it can load neither classes nor functions
import struct
from typing import Any

import msgspec

DEEPEST = 64
"""Levels that values may nest."""

_INTEGER_BITS = 128
_LABEL = 1000
_TAGS = b"torch.jit._pickle"

_PLAIN = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT LONG BININT BININT1 BININT2 LONG1 LONG4 FLOAT "
    "BINFLOAT UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES EMPTY_TUPLE "
    "TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS "
    "GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE"
)
"""The instructions that make plain values."""

_MALFORMED = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error,
    pickle.UnpicklingError,
)  # fmt: skip
"""Errors of the unpickler where instructions do not fit each other."""


class Refused(ValueError):
    """The pickle holds something other than plain values, or is malformed. Says where."""


class Cut(ValueError):
    """The pickle ends early.

    Attributes:
        values: what was on the stack then, the outermost first.
    """

    def __init__(self, offset: int, values: list[Any]) -> None:
        super().__init__(f"byte {offset}: the pickle ends early")
        self.values = values


class _Bytes(io.BytesIO):
    """Bytes; reading more than are left is an error."""

    def read(self, size: int | None = -1, /) -> bytes:
        offset, data = self.tell(), super().read(size)
        if size is not None and len(data) < size:
            self.seek(offset)
            raise EOFError
        return data

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n"):
            raise EOFError
        return line


class _Instructions(dict[int, Any]):
    def __missing__(self, code: int) -> Any:
        import pickletools

        names = {ord(op.code): op.name for op in pickletools.opcodes}
        if code not in names:
            raise Refused(f"no instruction of a pickle (0x{code:02x})")
        raise Refused(f"{names[code]}: only plain values are read")


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, with the instructions for plain values only."""

    stack: list[Any]
    metastack: list[list[Any]]
    dispatch = _Instructions(
        (getattr(pickle, name)[0], pickle._Unpickler.dispatch[getattr(pickle, name)[0]])
        for name in _PLAIN.split()
    )

    def load_frame(self) -> None:
        """Read on: a frame only says how many bytes belong together."""
        self.read(8)  # type: ignore[attr-defined]

    def load_setitems(self) -> None:
        """Fill the dict below the mark."""
        self._fill(self.pop_mark())  # type: ignore[attr-defined]

    def load_setitem(self) -> None:
        """Fill the dict below a key and a value."""
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def load_dict(self) -> None:
        """Make a dict of the values above the mark."""
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.stack.append({})
        self._fill(items)

    def _fill(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise Refused("not a dict, or a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, int):  # the hash of shared tuples may take forever
                raise Refused(f"a key that is {type(key).__name__}")
            target[key] = value

    dispatch[pickle.FRAME[0]] = load_frame
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.DICT[0]] = load_dict


def load(data: bytes) -> Any:
    """The value of a pickle.

    Raises:
        Refused: it holds something other than plain values, or is malformed.
        Cut: it ends early.
    """
    file = _Bytes(data)
    machine = _Unpickler(file)
    try:
        value = machine.load()
        if machine.stack or machine.metastack:
            raise Refused("several values where one is to be")
        _check(value)
    except EOFError:
        stacks = [*machine.metastack, machine.stack]
        raise Cut(file.tell(), [value for stack in stacks for value in stack]) from None
    except _MALFORMED as e:
        offset = file.tell() - 1
        tags = (
            ": written with type tags"
            if data.find(_TAGS, max(offset - 64, 0), offset + 64) >= 0
            else ""
        )
        raise Refused(f"byte {offset}{tags}: {str(e)[:80]}") from e
    return value


def _check(value: Any) -> None:
    """Refuse values that nest too deep or into themselves; each value is visited once."""
    depth: dict[int, int] = {}
    pending: list[tuple[Any, bool]] = [(value, False)]
    open_: set[int] = set()
    while pending:
        current, done = pending.pop()
        if type(current) is int and current.bit_length() > _INTEGER_BITS:
            raise Refused("an integer of too many digits")
        if type(current) not in (dict, list, tuple):
            continue
        inner = [*current.keys(), *current.values()] if type(current) is dict else current
        if done:
            depth[id(current)] = 1 + max((depth.get(id(v), 0) for v in inner), default=0)
            open_.discard(id(current))
            if depth[id(current)] > DEEPEST:
                raise Refused(f"values nest more than {DEEPEST} levels")
        elif id(current) in open_:
            raise Refused("a value that holds itself")
        elif id(current) not in depth:
            open_.add(id(current))
            pending.append((current, True))
            pending += [(v, False) for v in inner]


def label(value: Any) -> str:
    """A text, number, boolean or None as text of at most 1000 characters; "" for anything else."""
    return str(value)[:_LABEL] if not isinstance(value, dict | list | tuple | bytes) else ""


def json_text(value: Any, limit: int = 10_000) -> bytes | None:
    """A value as JSON; None if that takes more than ``limit`` values, as shared ones count again,
    and every hundred characters of text.

    Bytes and numbers that JSON has not become text.
    """
    budget = limit

    def plain(part: Any, level: int) -> Any:
        nonlocal budget
        budget -= 1 + (len(part) // 100 if isinstance(part, str | bytes) else 0)
        if budget < 0 or level > DEEPEST:
            raise Refused("too many values")
        if type(part) is dict:
            return {str(key): plain(v, level + 1) for key, v in part.items()}
        if type(part) in (list, tuple):
            return [plain(v, level + 1) for v in part]
        if type(part) is bytes:
            return part.decode("utf-8", "replace")
        if type(part) is float and not math.isfinite(part):
            return str(part)
        if type(part) is int and not -(1 << 63) <= part < 1 << 64:
            return str(part)
        if type(part) is str:
            return part.encode("utf-8", "replace").decode()
        return part

    try:
        return msgspec.json.encode(plain(value, 0))
    except Refused:
        return None
