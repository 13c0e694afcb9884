"""Plugins: readers and writers of installed packages, from traceconv's entry-point groups."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path, PurePath
from typing import Any, Generic, TypeVar

import msgspec

from traceconv.core.errors import PluginError, TraceconvError

Plugin = TypeVar("Plugin")


class Plugins(msgspec.Struct, Generic[Plugin], frozen=True):
    """Plugins of one entry-point group, together with our own of that kind.

    Attributes:
        found:  by name.
        broken: entries of other packages that failed to load, or lack a member: name and reason.
        foreign: of those that are found and not ours: by name, the package that brings them.
    """

    found: dict[str, Plugin]
    broken: tuple[tuple[str, str], ...] = ()
    foreign: Mapping[str, str] = msgspec.field(default_factory=dict)

    @contextmanager
    def blamed(self, name: str) -> Iterator[None]:
        """Name the plugin in every error that is raised in this context, unless it is ours.

        Raises:
            PluginError: the plugin raised anything but a TraceconvError; the message says what,
                where, and which package brings it.
        """
        try:
            yield
        except (TraceconvError, MemoryError):
            raise
        except Exception as e:
            if name not in self.foreign:
                raise
            trace = e.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = (
                f" ({PurePath(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
                if trace is not None
                else ""
            )
            raise PluginError(
                f"the plugin {name!r} of {self.foreign[name]} failed: {type(e).__name__}: {e}"
                f"{where}; it is not part of traceconv: report it to its authors"
            ) from e


def collect(
    group: str,
    own: Iterable[tuple[str, Plugin]],
    name_of: Callable[[Plugin], str],
    check: Callable[[Any], str],
) -> Plugins[Plugin]:
    """Our own plugins, and those that installed packages announce under ``group``.

    Args:
        own:   each with the module it is from.
        check: what is wrong with a plugin of another package, "" if nothing.

    Raises:
        PluginError: two plugins have one name.
    """
    candidates = list(own)
    broken: list[tuple[str, str]] = []
    foreign: dict[str, str] = {}
    for entry in _entry_points(group):
        try:
            plugin = entry.load()
            if wrong := check(plugin):
                raise PluginError(wrong)
            foreign[name_of(plugin)] = f"{entry.dist.name} {entry.dist.version}"
            candidates.append((entry.value, plugin))
        except Exception as e:  # noqa: BLE001 - a foreign package may raise anything
            broken.append((entry.name, f"{type(e).__name__}: {e}"))
    by_name: dict[str, Plugin] = {}
    origins: dict[str, str] = {}
    for origin, plugin in candidates:
        name = name_of(plugin)
        if name in by_name:
            raise PluginError(
                f"{name!r} is offered twice under {group}: by {origins[name]} and by {origin}; "
                "uninstall one of them"
            )
        by_name[name], origins[name] = plugin, origin
    return Plugins(by_name, tuple(broken), foreign)


def lacking(*members: str) -> Callable[[Any], str]:
    """A check that a plugin has these members, for :func:`collect`."""

    def check(plugin: Any) -> str:
        missing = [name for name in members if not hasattr(plugin, name)]
        return f"it lacks {', '.join(missing)}" if missing else ""

    return check


def _entry_points(group: str) -> Iterable[Any]:
    """The entry points of a group. Loading importlib.metadata takes a fourth of the time of
    `inspect`, so it is loaded only if an installed package may announce something to us.
    """
    if not announced():
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=group)


@cache
def announced() -> bool:
    """Whether an installed package may have entry points for us; True where that is unknown."""
    if any(hasattr(f, "find_distributions") for f in sys.meta_path if f is not PathFinder):
        return True
    places = list(map(Path, sys.path))
    return any(folder.is_file() for folder in places) or any(
        b"[traceconv." in file.read_bytes()
        for folder in places
        for file in folder.glob("*-info/entry_points.txt")
    )
