"""Known kinds of files that no reader takes, and advice for each.

They are recognised by their first bytes. Reports of Nsight Systems, whose layout is not public, are
recognised by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec
from msgspec.structs import replace

from traceconv.core.errors import Issues, MissingExtraError, SourceError, TraceconvError
from traceconv.core.source import ZIP, Source, is_archive
from traceconv.readers.shared.sqlite.files import is_sqlite

LISTED = 5
"""Files that a message describes."""

_PROFILE = "unread-file"
_HEAD = 1024
_TABLES = 6
_COLUMNS = 8
_TABLE_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
_LOOKED_INTO = 50
"""Most files without a known signature that are searched for columns of events."""


class Unread(msgspec.Struct, frozen=True):
    """A kind of file that no reader takes.

    Attributes:
        what:   it is, as the end of a sentence.
        advice: what to do.
        code:   the issue that it is beside files that are read; "" for what has its place there.
    """

    what: str
    advice: str
    code: str = ""


_COUNTERS = Unread(
    "a report of Nsight Compute, which has counters of single kernels and no timeline",
    "record the program with `nsys profile -o run`, and export that: "
    "nsys export --type sqlite run.nsys-rep",
    _PROFILE,
)
_SAMPLES = Unread(
    "samples of the CPU by Linux perf, not a timeline", "`perf report` shows it", _PROFILE
)
_POINTER = Unread(
    "a pointer of Git LFS in the place of a file",
    "fetch the file with `git lfs pull`",
    _PROFILE,
)
_PAGE = Unread("a web page", "look at it in a browser: it may say why the download failed")
_SUMMARIES = Unread(
    "scalars of TensorBoard", "the profiles are in plugins/profile/*/*.xplane.pb next to it"
)
_TENSORS = Unread("a file of torch.save, which has tensors and no profile", "name other files")
_PICKLE = Unread(
    "a Python pickle, and neither a flight recorder's dump nor a memory snapshot",
    "pickles are never loaded, as they may run programs; have it written as JSON lines or CSV",
)
_ARRAYS = Unread("a file of arrays or tables, not a trace", "have it written as JSON lines or CSV")
_ZIP = Unread("a zip archive in a folder", "name the archive itself, or unpack it", _PROFILE)
_TAR = Unread("a tar archive", "call it .tar and name it, or unpack it", _PROFILE)
_DATABASE = Unread(
    "an SQLite database of no profiler known here", "`traceconv formats` lists what is read"
)
_EMPTY = Unread("empty", "record or copy it again", "empty-file")

_SIGNS: Mapping[bytes, Unread] = {
    b"NVR\0": _COUNTERS,
    b"PERFILE2": _SAMPLES,
    b"version https://git-lfs": _POINTER,
    b"traceconv store ": Unread("a store of traceconv", "name it itself: FILE"),
    b"PAR1": _ARRAYS,
    b"\x89HDF\r\n": _ARRAYS,
    b"\x93NUMPY": _ARRAYS,
    **{
        sign: Unread(f"packed with {name}", f"unpack it first: {how}", _PROFILE)
        for sign, name, how in (
            (b"\xfd7zXZ\0", "xz", "unxz FILE"),
            (b"BZh", "bzip2", "bunzip2 FILE"),
            (b"\x04\x22\x4d\x18", "lz4", "lz4 -d FILE"),
            (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x FILE"),
            (b"Rar!\x1a\x07", "RAR", "unrar x FILE"),
        )
    },
}
"""Kinds by the first bytes."""


def recognised(source: Source, name: str) -> Unread | None:
    """The kind of a file that no reader takes; None if unknown.

    It reads the first bytes, and never raises.
    """
    kind = _by_name(name) or _by_content(source, name)
    if not kind or "FILE" not in kind.advice:
        return kind
    return replace(kind, advice=kind.advice.replace("FILE", PurePosixPath(name).name))


def explained(unknown: Sequence[tuple[Source, str]], issues: Issues) -> str:
    """What those of the files are that are known, two lines each; "" if none is.

    What may hold a profile comes first.

    Args:
        issues: of readers: why they could not read one of the files.
    """
    noted = {issue.file: issue.places for issue in issues if issue.code == _PROFILE}
    kinds = [(source, name, recognised(source, name)) for source, name in unknown]
    kinds[:_LOOKED_INTO] = [
        (source, name, kind or _by_columns(source, name))
        for source, name, kind in kinds[:_LOOKED_INTO]
    ]
    known_kinds = [(source, name, kind) for source, name, kind in kinds if kind is not None]
    lines = []
    for source, name, kind in sorted(known_kinds, key=lambda item: item[2].code != _PROFILE)[
        :LISTED
    ]:
        explanation = _tables(source, name) if kind is _DATABASE else kind
        reason = "; ".join(noted.get(source.title(name), ())) or explanation.what
        lines.append(f"{source.title(name)}: {reason}\n  {explanation.advice}")
    if lines and (hidden := len(unknown) - len(lines)):
        lines.append(f"... and {hidden} more that are not read")
    return "\n".join(lines)


def left_aside(unknown: Sequence[tuple[Source, str]], issues: Issues) -> None:
    """Count unexpected files next to the input that no reader has counted.

    Issues: unread-file, empty-file, log-unmapped.
    """
    noted = {(issue.code, issue.file) for issue in issues}
    for number, (source, name) in enumerate(unknown):
        kind = recognised(source, name)
        if kind is _DATABASE:
            kind = _tables(source, name)
        if kind is None and number < _LOOKED_INTO and _is_table(name):
            kind = _by_columns(source, name)
        if kind is not None and kind.code and (kind.code, source.title(name)) not in noted:
            issues.add(kind.code, source.title(name), kind.what)


def _by_name(name: str) -> Unread | None:
    path = PurePosixPath(name.lower())
    if path.suffix in (".nsys-rep", ".qdrep"):
        path_as_written = PurePosixPath(name)
        return Unread(
            "a report in Nvidia's own format",
            f"export it first: nsys export --type sqlite -o {path_as_written.stem}.sqlite "
            f"{path_as_written.name}; or say with `nsys` where nsys is",
            _PROFILE,
        )
    if path.suffix == ".qdstrm":
        return Unread(
            "a recording of Nsight Systems that was not made a report",
            "import it first: QdstrmImporter -i FILE; then export it with `nsys export`",
            _PROFILE,
        )
    return None


def _by_content(source: Source, name: str) -> Unread | None:
    try:
        head = source.first(name, _HEAD)
    except MissingExtraError:
        return None
    except SourceError as e:
        why = str(e).removeprefix(f"{source.title(name)}: ")
        return Unread(f"not readable ({why})", "copy it again, and see who may read it", _PROFILE)
    if not head:
        return _EMPTY
    for sign, kind in _SIGNS.items():
        if head.startswith(sign):
            return kind
    if is_sqlite(head):
        return _DATABASE
    if head.startswith(ZIP):
        return _TENSORS if b"data.pkl" in head else _ZIP
    if is_archive(head):
        return _TAR
    if b"brain.Event:" in head[:64]:
        return _SUMMARIES
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return _PAGE
    if PurePosixPath(name).name == "data.pkl":
        return _TENSORS
    return _PICKLE if head[:2] in (b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5") else None


def _by_columns(source: Source, name: str) -> Unread | None:
    """A log of events with unknown columns: the columns, and a mapping that reads it."""
    from traceconv.readers.event_log.proposal import proposed

    proposal = proposed(source.head(name))
    if proposal is None or not (proposal.mapping or _is_table(name)):
        return None
    columns = ", ".join(proposal.columns[:_COLUMNS]) + (
        " ..." if len(proposal.columns) > _COLUMNS else ""
    )
    description = (
        f"a table with unknown columns: {columns}" if columns else "lines of text with times"
    )
    if not proposal.mapping:
        how = 'say where names and times are: `mapping="name=COLUMN,ts=COLUMN:us"`'
        return Unread(description, f"if it is a log of events, {how}")
    assumed = f"; {proposal.assumed}" if proposal.assumed else ""
    advice = f'this reads it: `mapping="{proposal.mapping}"`{assumed}'
    return Unread(description, advice, "log-unmapped")


def _is_table(name: str) -> bool:
    return PurePosixPath(name.lower()).suffix in _TABLE_ENDINGS


def _tables(source: Source, name: str) -> Unread:
    """An SQLite database that no reader knows, by its tables."""
    from traceconv.readers.shared.sqlite.database import opened

    try:
        with opened(source, name, salvage=True) as database:
            tables, damage = sorted(database.tables), database.damaged_places()
    except TraceconvError as e:
        tables, damage = [], [str(e).removeprefix(f"{source.title(name)}: ")]
    if "CUPTI_ACTIVITY_KIND_KERNEL" in tables and "StringTable" in tables:
        file = PurePosixPath(name).name
        return Unread(
            "a database of nvprof",
            f"write it as CSV: nvprof -i {file} --csv --print-gpu-trace --log-file gpu.csv; then "
            'name gpu.csv with `mapping="nvprof-gpu"`',
        )
    names = ", ".join(tables[:_TABLES]) + (" ..." if len(tables) > _TABLES else "")
    if damage:
        what = f"a damaged SQLite database ({damage[0]}" + (
            f"; tables: {names})" * bool(names) or ")"
        )
        return Unread(what, "copy it again, with its -wal file", _PROFILE)
    return replace(_DATABASE, what=f"{_DATABASE.what} (tables: {names or 'none'})")
