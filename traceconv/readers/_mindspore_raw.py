"""Raw folders beside what old MindSpore made: known, or read where it made nothing of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._ascend_identity import Identity
from traceconv.readers._ascend_raw_beside import Window, beside, window, with_known, with_read
from traceconv.readers._ascend_raw_find import Raw
from traceconv.readers._mindspore_files import Kind, Plan
from traceconv.source import Source

_OF_DEVICE = (Kind.DISPLAY, Kind.OPERATORS, Kind.STEPS)
"""What is made of the records of a device."""


def with_raw(
    source: Source, captures: Sequence[Capture], ordered: Sequence[str], issues: Issues
) -> list[Capture]:
    """The captures with the raw folders beside them."""
    found = list(captures)
    for i, raws in beside(captures, ordered).items():
        plan: Plan = found[i].detail
        if any(part.kind in _OF_DEVICE for part in plan.parts):
            found[i] = with_known(found[i], raws, issues)
        else:
            windows = tuple(_window(source, raw, issues) for raw in raws)
            plan = replace(plan, raw=windows)
            found[i] = replace(with_read(found[i], raws), detail=plan, device=raws[0].device)
    return found


def _window(source: Source, raw: Raw, issues: Issues) -> Window:
    identity = Identity(source, issues)
    identity.prof_files(raw.known, raw.device)
    return window(identity, raw)
