"""The limits of a session: inputs below a root, outputs in one folder, names as data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from traceconv.core.errors import OptionError, OutputPathError, SourceError
from traceconv.core.kinds import Covered, Kind, OpClass, StepSource
from traceconv.core.markup import one_line
from traceconv.core.patterns import lazy_regex
from traceconv.core.tracks import Layer

_FOLDERS = lazy_regex(r"(?<![\w:/.])(?:/|[A-Za-z]:[\\/]|\\\\)(?:[^\s/\\'\"]+[/\\])+")
"""The folders in front of the last part of an absolute path."""

_WORD = lazy_regex(r"\w+")

_NUMBERS = lazy_regex(r"|[+-]?[\d,]*\d(?:\.\d+)?(?:e[+-]?\d+)?%?|\d+(?:-\d+)?(?:, ?\d+(?:-\d+)?)*")
"""A number, or ranges of them; no text at all."""

_SHORT = 4
"""Names with fewer characters are replaced within texts only as whole words, and only if they have
letters and are not among :data:`_WORDS`."""

_WORDS = frozenset({
    "a", "all", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can", "for", "has",
    "if", "in", "is", "it", "its", "may", "no", "non", "not", "of", "off", "on", "one", "op",
    "or", "out", "per", "so", "sql", "the", "to", "two", "up", "was", "x", "ns", "us", "µs", "ms",
    "s", "min", "h", "b", "kb", "mb", "gb", "kib", "mib", "gib",
})  # fmt: skip
"""Short words of sentences, and units."""

_MOST = 5000
"""Most names and other characters that are kept of a text."""

_NAMED = {
    "host": ("host",),
    "file": ("label", "file", "source", "unknown", "unread_files"),
    "name": (
        "name", "kernel", "slice", "lane", "link", "group", "operation", "operator", "op type",
        "module", "shape", "type", "where", "trace", "communicator", "copy", "range", "process",
        "thread", "track", "api name", "path", "line", "queue", "before",
    ),
}  # fmt: skip
"""Keys of documents and columns of tables that hold names, by the word that replaces them."""

_KINDS = {key: kind for kind, keys in _NAMED.items() for key in keys}

_OURS = frozenset({
    *(code.name.lower() for kinds in (Kind, OpClass, StepSource, Covered) for code in kinds),
    *(f"{scope}{kind}_track_event" for scope in ("process", "thread")
      for kind in ("", "_counter", "_merged")),
    *Layer, "CPU", "GPU", "NPU", "TPU", "Host CPU", "thread_execution", "int", "real", "string",
    "range", "timeline", "late launch", "dependency", "unknown",
    "Computing", "Communication", "Free", "Memory Copy", "Unclassified", "Overlap Analysis",
    "Step Trace", "Host", "Hardware", "Runtime", "Counters", "Other", "iterations", "step",
    "device", "host", "compute", "communication", "warning", "rank", "Step", "Rank", "Device",
})  # fmt: skip
"""Words of traceconv itself."""


class Workspace:
    """The inputs and the output folder of a session.

    Args:
        root:   inputs are below it, and are named relative to it.
        output: where windows may be written; None for nowhere.
        redact: whether names of hosts, files and events are replaced, each by the same word for
            the whole session.
    """

    def __init__(self, root: Path, output: Path | None = None, redact: bool = False) -> None:
        self.root, self.output, self.redact = root.resolve(), output, redact
        self._shown: dict[str, str] = {}
        self._hidden: dict[str, str] = {}
        self._lengths: dict[str, list[int]] = {}  # of names by their beginning, the longest first
        folders = {str(root.absolute()), str(self.root), str(Path.cwd())}
        self._own = sorted((folder for folder in folders if len(folder) > 1), key=len, reverse=True)

    # -- inputs ----------------------------------------------------------------------------

    def input(self, name: str) -> Path:
        """The file or folder of a name, as answers show it.

        Raises:
            SourceError: it is not below the root, or not there.
        """
        name = self.revealed(name)
        path = self.root / name
        inside = not Path(name).is_absolute() and "://" not in name and self._inside(path)
        if not inside:
            raise SourceError(f"{name!r}: only files below the root can be read; name them from it")
        if not path.exists():
            raise SourceError(f"{name!r}: no such file or folder below the root")
        if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
            raise SourceError(f"{name!r}: neither a file nor a folder")
        for link in _links(path):
            if not self._inside(link):
                raise SourceError(f"{name!r}: holds a link that leaves the root; name other files")
        return path

    def _inside(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError, ValueError):  # a link to itself, a name with a NUL
            return False

    def target(self, name: str) -> Path:
        """Where an output of this name is written.

        Raises:
            OptionError: writing was not allowed.
            OutputPathError: it is not a plain name, or the name of a link.
        """
        if self.output is None:
            raise OptionError("the user allowed no folder for outputs when the server was started")
        plain = name == Path(name).name and name.isprintable() and not name.startswith((".", "-"))
        if not name or not plain:
            raise OutputPathError(f"{name!r}: pass a plain file name, such as window.pftrace")
        if (self.output / name).is_symlink():  # it may lead out of the folder
            raise OutputPathError(f"{name!r} is a link; pass another file name")
        return self.output / name

    # -- names -----------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """A text without paths of this machine, and without names if they are hidden."""
        for folder in self._own:
            text = text.replace(f"{folder}/", "").replace(folder, ".")
        text = _FOLDERS.sub("", text)
        if not self.redact:
            return text
        return self._shown.get(text) or "".join(islice(self._replaced(text), _MOST))

    def _replaced(self, text: str) -> Iterator[str]:
        """A text in pieces: the words of the longest names, and single characters."""
        position = 0
        while position < len(text):
            name = self._name_at(text, position)
            yield self._shown[name] if name else text[position]
            position += max(len(name), 1)

    def _name_at(self, text: str, position: int) -> str:
        """The longest name that begins at a place of a text; "" if none does."""
        for size in range(_SHORT, 0, -1):
            for length in self._lengths.get(text[position : position + size], ()):
                name, around = (
                    text[position : position + length],
                    text[max(position - 1, 0) : position + length + 1],
                )
                alone = _WORD.findall(around) == _WORD.findall(name)
                if name in self._shown and (length >= _SHORT or alone):
                    return name
        return ""

    def revealed(self, text: str) -> str:
        """A text of the agent, with the names in place of their words."""
        for word in sorted((w for w in self._hidden if w in text), key=len, reverse=True):
            text = text.replace(word, self._hidden[word])
        return text

    def learn(self, names: Iterable[str], kind: str = "name") -> None:
        """Have names replaced from now on."""
        if not self.redact:
            return
        for name in names:
            for folder in self._own:
                name = name.replace(f"{folder}/", "")
            shown = _FOLDERS.sub("", name)  # as it is in texts
            if shown and shown not in self._shown and not _OURS.issuperset(shown.split(" / ")):
                word = f"{kind}-{len(self._hidden) + 1}"
                self._hidden[word] = shown
                for spelled in (shown, one_line(shown)):
                    self._shown[spelled] = word
                    self._look_for(spelled)

    def _look_for(self, name: str) -> None:
        """Have a name found within texts."""
        if len(name) < _SHORT and (name.lower() in _WORDS or not any(map(str.isalpha, name))):
            return
        lengths = self._lengths.setdefault(name[:_SHORT], [])
        if len(name) not in lengths:
            lengths.append(len(name))
            lengths.sort(reverse=True)

    def learn_document(self, document: Any) -> None:
        """Have the names in a JSON document replaced."""
        for kind, name in _names(document):
            self.learn([name], kind)

    def cell(self, column: str, text: str) -> str:
        """A text in a column of a table, replaced if it is a name. A number is a name only in a
        column of names."""
        kind = _KINDS.get(column.lower())
        if text in _OURS or (kind is None and _NUMBERS.fullmatch(text)):
            return text
        if text.startswith("{"):
            return "{}"  # arguments
        self.learn([text], kind or "name")
        return self.text(text)

    def learn_table(self, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
        """Have the texts of a table replaced."""
        for row in rows:
            for column, cell in zip(columns, row, strict=True):
                if isinstance(cell, str):
                    self.learn([cell], _KINDS.get(column.lower(), "name"))


def _links(path: Path) -> Iterator[Path]:
    """Links at and below a path."""
    if path.is_symlink():
        yield path
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            if (inner := Path(folder, name)).is_symlink():
                yield inner


def file_state(path: Path) -> set[tuple[str, int, int]]:
    """The files at and below a path, with their sizes and when they were changed, ns."""
    below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    about = ((str(file), file.stat()) for file in (path, *below))
    return {(name, state.st_size, state.st_mtime_ns) for name, state in about}


def _names(value: Any) -> Iterator[tuple[str, str]]:
    """The names in a document, with their kinds."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            kind = _KINDS.get(key, "file" if key == "files" else "")
            for text in inner if isinstance(inner, list | Mapping) else [inner]:
                if kind and isinstance(text, str):
                    yield kind, text
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)
