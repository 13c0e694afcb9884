"""Raw folders beside the files old MindSpore made itself.

What it derived from the device's records shows the same run, so these are not read again. A run
that crashed has only its host's side derived; the records then complete the same capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.io.sources import Source
from traceconv.readers.ascend.common.file_names import folder_around
from traceconv.readers.ascend.common.identity import Identity
from traceconv.readers.ascend.raw.folders import Raw, raw_folders

if TYPE_CHECKING:
    from traceconv.readers.ascend.raw.clock import Clock


@dataclass(frozen=True)
class Window:
    """One raw folder of a capture, with its clock and the chip's ``platform_version``."""

    raw: Raw
    clock: Clock
    chip: str = ""

    def read(self, build: TraceBuilder, source: Source) -> None:
        """Put everything into ``build``."""
        from traceconv.readers.ascend.raw.content import read_raw

        read_raw(build, source, self.raw, self.clock.fresh(), self.chip, "")

    def read_beside(self, build: TraceBuilder, source: Source, clock: Anchor | None) -> None:
        """The same beside events of another clock: without a common one, both begin together."""
        from traceconv.readers.ascend.raw.content import read_raw

        own, span = self.clock.fresh(), build.span()
        apart = clock is None or clock.domain is not own.domain or own.domain is Domain.RELATIVE
        if apart and span is not None:
            own.device = replace(own.device, tick=None, at_ns=span[0])
            own.doubts = ("no clock in common: the device's first record was put at the start",)
        read_raw(build, source, self.raw, own, self.chip, "")


def window(identity: Identity, raw: Raw) -> Window:
    """A folder with what its small files say."""
    from traceconv.readers.ascend.raw.clock import read_clock

    clock = read_clock(identity, raw.known, raw.device)
    return Window(raw, clock, identity.chip)


def beside(captures: Sequence[Capture], ordered: Sequence[str]) -> dict[int, list[Raw]]:
    """Raw folders by the capture (its position) they lie beside: of several the one whose rank
    is the device's number.
    """
    found: dict[int, list[Raw]] = {}
    folders = [raw for raw in raw_folders(ordered) if raw.slices]
    for raw in folders:
        around = folder_around(raw.root)
        near = [i for i, c in enumerate(captures) if around is not None and _folder(c) == around]
        alone = len([r for r in folders if folder_around(r.root) == around]) == 1
        if not (alone and len(near) == 1):
            near = [i for i in near if captures[i].rank == raw.device]
        for i in near[:1]:
            found.setdefault(i, []).append(raw)
    return found


def _folder(capture: Capture) -> str | None:
    """The ``profiler`` folder of a capture."""
    name = next(iter((*capture.files, *capture.known)), "")
    folder = name.rpartition("/")[0]
    inner = folder.rpartition("/")[2] in ("host_info", "FRAMEWORK")
    return folder.rpartition("/")[0] if inner else folder


def with_known(capture: Capture, raws: Sequence[Raw], issues: Issues) -> Capture:
    """``capture`` with raw folders that hold nothing it does not show."""
    names = [name for raw in raws for name in (*raw.files, *raw.known)]
    for raw in raws:
        issues.add("repeated-content", capture.source.title(raw.root), "raw data of the same run")
    known = dict.fromkeys((*capture.known, *names))
    return replace(capture, known=tuple(n for n in known if n not in capture.files))


def with_read(capture: Capture, raws: Sequence[Raw]) -> Capture:
    """``capture`` with the files of raw folders that are read along."""
    files = (*capture.files, *(name for raw in raws for name in raw.files))
    known = dict.fromkeys((*capture.known, *(name for raw in raws for name in raw.known)))
    return replace(capture, files=files, known=tuple(n for n in known if n not in set(files)))
