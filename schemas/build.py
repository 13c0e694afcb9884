"""Turns ``schemas/proto/*.proto`` into the descriptor sets of ``tests/descriptors``.

Run it as ``make proto``; a test fails when the result is not what lies there. No protocol
compiler is needed: our files use a small part of the language, and this module reads just that
part - messages, enums, nesting, ``oneof``, and fields without options. Anything else is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

SOURCES = Path(__file__).parent / "proto"
TARGET = Path(__file__).parents[1] / "tests" / "descriptors"

_TOKEN = re.compile(r'\s+|//[^\n]*|(?P<token>"[^"]*"|[\w.]+|[{}=;])')
_LABELS = ("optional", "required", "repeated")
_SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}


class ProtoError(ValueError):
    """A ``.proto`` file uses what this reader does not know. Says the file and the line."""


class _Tokens:
    """The words of one file, comments left out."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._all = list(self._split())
        self._at = 0

    def _split(self) -> Iterator[tuple[str, int]]:
        at = 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise self._error(at, f"unexpected {self._text[at]!r}")
            if match["token"]:
                yield match["token"], at
            at = match.end()

    def _error(self, at: int, why: str) -> ProtoError:
        return ProtoError(f"{self._name}: line {self._text.count(chr(10), 0, at) + 1}: {why}")

    def __bool__(self) -> bool:
        return self._at < len(self._all)

    def next(self) -> str:
        if not self:
            raise self._error(len(self._text), "unexpected end")
        self._at += 1
        return self._all[self._at - 1][0]

    def expect(self, *wanted: str) -> None:
        for word in wanted:
            found = self.next()
            if found != word:
                raise self.unexpected(found, f"instead of {word!r}")

    def unexpected(self, word: str, why: str = "is not supported") -> ProtoError:
        return self._error(self._all[self._at - 1][1], f"{word!r} {why}")

    def number(self) -> int:
        word = self.next()
        if not word.isdecimal():
            raise self.unexpected(word, "instead of a number")
        return int(word)


def parse(name: str, text: str) -> FileDescriptorProto:
    """The descriptor of one file.

    Raises:
        ProtoError: it uses anything but messages, enums, nesting, oneof and plain fields.
    """
    tokens = _Tokens(name, text)
    file = FileDescriptorProto(name=name)
    while tokens:
        word = tokens.next()
        if word == "syntax":
            tokens.expect("=")
            _set_syntax(file, tokens.next().strip('"'))
            tokens.expect(";")
        elif word == "package":
            file.package = tokens.next()
            tokens.expect(";")
        elif word == "message":
            _message(tokens, file.message_type.add())
        elif word == "enum":
            _enum(tokens, file.enum_type.add())
        else:
            raise tokens.unexpected(word)
    _resolve(file)
    return file


def _set_syntax(file: FileDescriptorProto, syntax: str) -> None:
    if syntax != "proto2":  # which is what a descriptor without a syntax is
        file.syntax = syntax


def _message(tokens: _Tokens, message: DescriptorProto) -> None:
    message.name = tokens.next()
    tokens.expect("{")
    while (word := tokens.next()) != "}":
        if word == "message":
            _message(tokens, message.nested_type.add())
        elif word == "enum":
            _enum(tokens, message.enum_type.add())
        elif word == "oneof":
            message.oneof_decl.add(name=tokens.next())
            tokens.expect("{")
            while (word := tokens.next()) != "}":
                _field(tokens, word, message).oneof_index = len(message.oneof_decl) - 1
        else:
            _field(tokens, word, message)


def _field(tokens: _Tokens, word: str, message: DescriptorProto) -> FieldDescriptorProto:
    field = message.field.add(label=FieldDescriptorProto.LABEL_OPTIONAL)
    if word in _LABELS:
        field.label = FieldDescriptorProto.Label.Value(f"LABEL_{word.upper()}")
        word = tokens.next()
    field.type_name = word
    field.name = tokens.next()
    tokens.expect("=")
    field.number = tokens.number()
    tokens.expect(";")
    return field


def _enum(tokens: _Tokens, enum: EnumDescriptorProto) -> None:
    enum.name = tokens.next()
    tokens.expect("{")
    while (word := tokens.next()) != "}":
        tokens.expect("=")
        enum.value.add(name=word, number=tokens.number())
        tokens.expect(";")


def _resolve(file: FileDescriptorProto) -> None:
    """Give every field its type: a scalar, or the full name of the innermost match."""
    known: dict[str, int] = {}

    def collect(scope: str, holder: FileDescriptorProto | DescriptorProto) -> None:
        nested = holder.message_type if isinstance(holder, FileDescriptorProto) else None
        for message in holder.nested_type if nested is None else nested:
            known[f"{scope}.{message.name}"] = FieldDescriptorProto.TYPE_MESSAGE
            collect(f"{scope}.{message.name}", message)
        for enum in holder.enum_type:
            known[f"{scope}.{enum.name}"] = FieldDescriptorProto.TYPE_ENUM

    def settle(scope: str, message: DescriptorProto) -> None:
        for field in message.field:
            _set_type(field, f"{scope}.{message.name}", known)
        for nested in message.nested_type:
            settle(f"{scope}.{message.name}", nested)

    root = f".{file.package}" if file.package else ""
    collect(root, file)
    for message in file.message_type:
        settle(root, message)


def _set_type(field: FieldDescriptorProto, scope: str, known: dict[str, int]) -> None:
    name = field.type_name
    if name in _SCALARS:
        field.ClearField("type_name")
        field.type = _SCALARS[name]
        return
    while f"{scope}.{name}" not in known:
        if not scope:
            raise ProtoError(f"field {field.name!r}: unknown type {name!r}")
        scope = scope.rpartition(".")[0]
    field.type_name = f"{scope}.{name}"
    field.type = known[field.type_name]


def descriptor_set(path: Path) -> bytes:
    """The serialised ``FileDescriptorSet`` of one ``.proto`` file."""
    parsed = FileDescriptorSet(file=[parse(path.name, path.read_text("utf-8"))])
    return parsed.SerializeToString(deterministic=True)


def main() -> None:
    """Write every descriptor set."""
    for path in sorted(SOURCES.glob("*.proto")):
        target = TARGET / f"{path.stem}.binpb"
        target.write_bytes(descriptor_set(path))
        sys.stdout.write(f"{target.name}\n")


if __name__ == "__main__":
    main()
