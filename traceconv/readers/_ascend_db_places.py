"""Where databases of Ascend captures lie: which are read, and which files belong to each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from traceconv.errors import Issues
from traceconv.readers._ascend_db_find import Held
from traceconv.readers._ascend_known import (
    PROF,
    below,
    folder_around,
    inside,
    is_capture_file,
    is_capture_folder,
    is_framework_database,
    is_prof_file,
    starting,
)
from traceconv.source import Source


@dataclass(frozen=True)
class Place:
    """One database to read.

    Attributes:
        root:   the folder of its capture.
        folder: the one whose name may tell whose it is.
        known:  the capture's other files.
        around: files that may tell whose it is.
        alone:  whether they can speak of nothing else, as no other database lies there.
    """

    name: str
    root: str
    folder: str
    known: tuple[str, ...]
    around: tuple[str, ...]
    alone: bool


def places(
    source: Source, ordered: Sequence[str], held: Mapping[str, Held], issues: Issues
) -> Iterator[Place]:
    """The databases to read; those that say the same again are booked."""
    chosen = _chosen(source, held, issues)
    folders = {name: _folder(root) for name, root in chosen.items()}
    roots, crowds = Counter(chosen.values()), Counter(folders.values())
    for name, root in chosen.items():
        mine = roots[root] == 1
        known = _known(ordered, held, name, root) if mine else []
        known += [n for n in (f"{name}-wal", f"{name}-shm") if n in ordered and n not in known]
        yield Place(
            name=name,
            root=root,
            folder=folders[name],
            known=tuple(n for n in known if n not in chosen),
            around=_around(ordered, folders[name]),
            alone=mine and crowds[folders[name]] == 1,
        )


def _chosen(source: Source, held: Mapping[str, Held], issues: Issues) -> dict[str, str]:
    """The databases to read, with the folder of each one's capture.

    A framework's database holds what the collector's of the same folder does; of several exports
    of one collection, the newest is read.
    """
    events = {name: _root(name) for name, what in held.items() if what.events}
    whole = {root for name, root in events.items() if is_framework_database(name)}
    newest: dict[PurePosixPath, str] = {}
    for name, root in list(events.items()):
        path = PurePosixPath(name)
        if is_framework_database(name) or not path.name.startswith("msprof_"):
            continue
        if root in whole:
            issues.add("repeated-content", source.title(name))
            del events[name]
        elif older := newest.get(path.parent):
            issues.add("superseded-export", source.title(older))
            del events[older]
        newest[path.parent] = name
    return events


def _root(name: str) -> str:
    """The folder of the capture a database belongs to: the framework's, else the collector's."""
    parts = PurePosixPath(name).parts[:-1]
    for i in range(len(parts), 0, -1):
        if PROF.fullmatch(parts[i - 1]):
            around = "/".join(parts[: i - 1])
            return around if is_capture_folder(around) else "/".join(parts[:i])
    if parts and parts[-1] in ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output"):
        parts = parts[:-1]
    return "/".join(parts)


def _folder(root: str) -> str:
    """The folder that carries names: that around a folder of the collector, else the root."""
    around = folder_around(root)
    return around if around is not None and PROF.fullmatch(root.rpartition("/")[2]) else root


def _known(ordered: Sequence[str], held: Mapping[str, Held], name: str, root: str) -> list[str]:
    """The other files of a capture, and databases with sums beside it."""
    found = []
    for other in below(ordered, root):
        relative = inside(other, root)
        sums = other in held and not held[other].events and _root(other) == root
        if other != name and (sums or is_capture_file(relative) or is_prof_file(relative)):
            found.append(other)
    return found


def _around(ordered: Sequence[str], folder: str) -> tuple[str, ...]:
    prefix = f"{folder}/" if folder else ""
    wanted = ("profiler_info", "profiler_metadata.json")
    return tuple(n for start in wanted for n in starting(ordered, prefix + start))
