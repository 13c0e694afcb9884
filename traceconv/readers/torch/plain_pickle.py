"""Pickles of plain values, by a machine that can make nothing else.

Python's own reader of pickles runs what a pickle tells it to. This one knows dicts, lists, tuples,
text, bytes, numbers, booleans and None, and the instructions that make them; every other
instruction is refused by its name and place: none refers to a class or a function, calls anything,
or sets attributes.

A hostile pickle is bounded, too: nothing is longer than the bytes that are left, integers have 16
bytes at most, values nest :data:`DEEPEST` levels at most and not into themselves. A value that is
referred to many times is one object; who writes it out again has to bound that
(:func:`json_text`).

Source: the comments of CPython's ``pickletools`` (public documentation of the instructions).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import msgspec

DEEPEST = 64
"""Levels that values may nest."""

_INTEGER_BYTES = 16
_DIGITS = 40

_REFUSED = {
    0x30: "POP",
    0x31: "POP_MARK",
    0x32: "DUP",
    0x50: "PERSID",
    0x51: "BINPERSID",
    0x52: "REDUCE",
    0x53: "STRING",
    0x54: "BINSTRING",
    0x55: "SHORT_BINSTRING",
    0x62: "BUILD",
    0x63: "GLOBAL",
    0x69: "INST",
    0x6F: "OBJ",
    0x81: "NEWOBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x8E: "BINBYTES8",
    0x8F: "EMPTY_SET",
    0x90: "ADDITEMS",
    0x91: "FROZENSET",
    0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL",
    0x96: "BYTEARRAY8",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}
"""Instructions that are not carried out."""

_TAGS = b"torch.jit._pickle"


class Refused(ValueError):
    """The pickle holds something other than plain values, or is malformed. Says where."""


class Cut(ValueError):
    """The pickle ends early.

    Attributes:
        values: what was on the stack then, the outermost first.
    """

    def __init__(self, at: int, values: list[Any]) -> None:
        super().__init__(f"byte {at}: the pickle ends early")
        self.values = values


class _Machine(msgspec.Struct):
    """The stack and what was put aside."""

    data: Any
    at: int = 0
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    # -- bytes -------------------------------------------------------------------------------

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size < 0:
            raise Refused("a negative length")
        end = self.at + size
        if end > len(self.data):
            raise EOFError
        raw = bytes(self.data[self.at : end])
        self.at = end
        return raw

    def number(self, size: int) -> int:
        """The next bytes as a number without a sign."""
        return int.from_bytes(self.take(size), "little")

    def line(self) -> bytes:
        """The bytes up to the end of the line."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise EOFError
        raw = bytes(self.data[self.at : end])
        self.at = end + 1
        return raw

    def text(self, raw: bytes) -> str:
        """Text; half of a surrogate pair stays what it is."""
        return raw.decode("utf-8", "surrogatepass")

    # -- stack -------------------------------------------------------------------------------

    def pop(self) -> Any:
        """The topmost value of the current frame."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Refused("nothing to take from the stack")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        """The topmost value, which stays; of this type."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Refused("nothing on the stack")
        if type(self.stack[-1]) is not kind:
            raise Refused(f"no {kind.__name__} on the stack")
        return self.stack[-1]

    def items(self) -> list[Any]:
        """All values above the last mark."""
        if not self.marks:
            raise Refused("no mark on the stack")
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def put(self, number: int) -> None:
        """Remember the topmost value."""
        if not self.stack:
            raise Refused("nothing on the stack")
        self.memo[number] = self.stack[-1]

    def get(self, number: int) -> None:
        """A remembered value once more."""
        if number not in self.memo:
            raise Refused(f"no value was remembered as {number}")
        self.stack.append(self.memo[number])


def _fill(target: dict[Any, Any], items: list[Any]) -> None:
    if len(items) % 2:
        raise Refused("a key without a value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) not in (str, int):
            raise Refused(f"a key that is {type(key).__name__}")
        target[key] = value


def _integer(text: bytes) -> int:
    if len(text) > _DIGITS:
        raise Refused("an integer of too many digits")
    return int(text.decode("ascii"))


def _long(raw: bytes) -> int:
    if len(raw) > _INTEGER_BYTES:
        raise Refused("an integer of too many bytes")
    return int.from_bytes(raw, "little", signed=True)


def _short(m: _Machine, size: int) -> int:
    if size > _INTEGER_BYTES:
        raise Refused("an integer of too many bytes")
    return _long(m.take(size))


def _protocol(m: _Machine) -> None:
    if m.number(1) > 5:
        raise Refused("a protocol that is not known")


def _frame(m: _Machine) -> None:
    if m.at + m.number(8) > len(m.data):
        raise EOFError


def _int(m: _Machine) -> None:
    line = m.line()
    words = {b"00": False, b"01": True}
    m.stack.append(words[line] if line in words else _integer(line))


def _float(m: _Machine) -> None:
    m.stack.append(float(m.line()[:100].decode("ascii")))


def _dict(m: _Machine) -> None:
    made: dict[Any, Any] = {}
    _fill(made, m.items())
    m.stack.append(made)


def _setitem(m: _Machine) -> None:
    value, key = m.pop(), m.pop()
    _fill(m.top(dict), [key, value])


def _setitems(m: _Machine) -> None:
    items = m.items()
    _fill(m.top(dict), items)


def _append(m: _Machine) -> None:
    value = m.pop()
    m.top(list).append(value)


def _appends(m: _Machine) -> None:
    items = m.items()
    m.top(list).extend(items)


def _tuple(size: int) -> Callable[[_Machine], None]:
    def carry_out(m: _Machine) -> None:
        m.stack.append(tuple([m.pop() for _ in range(size)][::-1]))

    return carry_out


def _push(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def carry_out(m: _Machine) -> None:
        m.stack.append(value(m))

    return carry_out


_CARRIED_OUT: dict[int, Callable[[_Machine], None]] = {
    0x80: _protocol,
    0x95: _frame,
    0x28: lambda m: m.marks.append(len(m.stack)),  # MARK
    0x29: _push(lambda m: ()),  # EMPTY_TUPLE
    0x42: _push(lambda m: m.take(m.number(4))),  # BINBYTES
    0x43: _push(lambda m: m.take(m.number(1))),  # SHORT_BINBYTES
    0x46: _float,
    0x47: _push(lambda m: struct.unpack(">d", m.take(8))[0]),  # BINFLOAT
    0x49: _int,
    0x4A: _push(lambda m: struct.unpack("<i", m.take(4))[0]),  # BININT
    0x4B: _push(lambda m: m.number(1)),  # BININT1
    0x4C: _push(lambda m: _integer(m.line().removesuffix(b"L"))),  # LONG
    0x4D: _push(lambda m: m.number(2)),  # BININT2
    0x4E: _push(lambda m: None),  # NONE
    0x56: _push(lambda m: m.line().decode("raw-unicode-escape")),  # UNICODE
    0x58: _push(lambda m: m.text(m.take(m.number(4)))),  # BINUNICODE
    0x5D: _push(lambda m: []),  # EMPTY_LIST
    0x61: _append,
    0x64: _dict,
    0x65: _appends,
    0x67: lambda m: m.get(_integer(m.line())),  # GET
    0x68: lambda m: m.get(m.number(1)),  # BINGET
    0x6A: lambda m: m.get(m.number(4)),  # LONG_BINGET
    0x6C: _push(lambda m: m.items()),  # LIST
    0x70: lambda m: m.put(_integer(m.line())),  # PUT
    0x71: lambda m: m.put(m.number(1)),  # BINPUT
    0x72: lambda m: m.put(m.number(4)),  # LONG_BINPUT
    0x73: _setitem,
    0x74: _push(lambda m: tuple(m.items())),  # TUPLE
    0x75: _setitems,
    0x7D: _push(lambda m: {}),  # EMPTY_DICT
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    0x88: _push(lambda m: True),  # NEWTRUE
    0x89: _push(lambda m: False),  # NEWFALSE
    0x8A: _push(lambda m: _short(m, m.number(1))),  # LONG1
    0x8B: _push(lambda m: _short(m, m.number(4))),  # LONG4
    0x8C: _push(lambda m: m.text(m.take(m.number(1)))),  # SHORT_BINUNICODE
    0x8D: _push(lambda m: m.text(m.take(m.number(8)))),  # BINUNICODE8
    0x94: lambda m: m.put(len(m.memo)),  # MEMOIZE
}
"""The instructions that make plain values, by their codes; STOP (0x2E) ends a pickle."""

_STOP = 0x2E


def load(data: Any) -> Any:
    """The value of a pickle.

    Args:
        data: bytes, or a mapped file.

    Raises:
        Refused: it holds something other than plain values, or is malformed.
        Cut: it ends early.
    """
    m = _Machine(data)
    size, table = len(data), _CARRIED_OUT
    while m.at < size:
        begin, code = m.at, data[m.at]
        m.at += 1
        if code == _STOP:
            return _checked(m)
        carry_out = table.get(code)
        if carry_out is None:
            raise Refused(_why_not(data, code, begin))
        try:
            carry_out(m)
        except EOFError:
            raise Cut(begin, m.stack) from None
        except (Refused, ValueError, OverflowError) as e:
            raise Refused(f"byte {begin}: {str(e)[:80]}") from e
    raise Cut(size, m.stack)


def _why_not(data: Any, code: int, at: int) -> str:
    name = _REFUSED.get(code)
    if name is None:
        return f"byte {at}: no instruction of a pickle (0x{code:02x})"
    if name in ("GLOBAL", "STACK_GLOBAL") and data.find(_TAGS, max(at - 64, 0), at + 64) >= 0:
        return f"byte {at}: {name}: written with type tags; only plain values are read"
    return f"byte {at}: {name}: only plain values are read"


def _checked(m: _Machine) -> Any:
    if len(m.stack) != 1 or m.marks:
        raise Refused(f"byte {m.at - 1}: {len(m.stack)} values where one is to be")
    value = m.stack[0]
    _depth(value)
    return value


def _depth(value: Any) -> None:
    """See that values nest a few levels only, and not into themselves; each is looked at once."""
    depth: dict[int, int] = {}
    pending: list[tuple[Any, bool]] = [(value, False)]
    open_: set[int] = set()
    while pending:
        one, done = pending.pop()
        if type(one) not in (dict, list, tuple):
            continue
        inner = one.values() if type(one) is dict else one
        if done:
            below = (depth.get(id(v), 0) for v in inner if type(v) in (dict, list, tuple))
            depth[id(one)] = 1 + max(below, default=0)
            open_.discard(id(one))
            if depth[id(one)] > DEEPEST:
                raise Refused(f"values nest more than {DEEPEST} levels")
        elif id(one) in open_:
            raise Refused("a value that holds itself")
        elif id(one) not in depth:
            open_.add(id(one))
            pending.append((one, True))
            pending += [(v, False) for v in inner if type(v) in (dict, list, tuple)]


def json_text(value: Any, most: int = 10_000) -> bytes | None:
    """A value as JSON; None if that takes more than ``most`` values, as shared ones count again.

    Bytes and numbers that JSON has not become text.
    """
    left = most

    def plain(one: Any, level: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or level > DEEPEST:
            raise _TooMuchError
        if type(one) is dict:
            return {str(key): plain(v, level + 1) for key, v in one.items()}
        if type(one) in (list, tuple):
            return [plain(v, level + 1) for v in one]
        if type(one) is bytes:
            return one[:most].decode("utf-8", "replace")
        if type(one) is float and not math.isfinite(one):
            return str(one)
        if type(one) is int and not -(1 << 63) <= one < 1 << 64:
            return str(one)
        if type(one) is str:
            return one.encode("utf-8", "replace").decode()
        return one

    try:
        return msgspec.json.encode(plain(value, 0))
    except _TooMuchError:
        return None


class _TooMuchError(Exception):
    """A value has too many parts."""
