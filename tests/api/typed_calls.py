"""Calls that a type checker accepts and refuses: read by mypy in ``make check``, never run.

Each ``type: ignore`` names the error that mypy reports there; one that reports nothing fails.
"""

from pathlib import Path

import traceconv

RIGHT = [
    traceconv.merge(Path("a"), "b", out=Path("x.json"), ranks=range(4), mode=None, layers="device"),
    traceconv.merge("a", ranks="0-7", steps=3, time="0s:1s", limit="200M", args=["a"], jobs=2),
    traceconv.stats("a", by="kernel", time=(0, 5), mem_limit="600M"),
    traceconv.merge("a", align=Path("offsets.json"), selection=traceconv.Selection(ranks=(0,))),
]

WRONG = [
    traceconv.merge("a", mode="detial"),  # type: ignore[arg-type]
    traceconv.merge("a", layers=["devcie"]),  # type: ignore[list-item]
    traceconv.merge("a", align="colective"),  # type: ignore[arg-type]
    traceconv.merge("a", engine="dusk"),  # type: ignore[arg-type]
    traceconv.merge("a", over_limit="splt"),  # type: ignore[arg-type]
    traceconv.merge("a", ranks=1.5),  # type: ignore[arg-type]
]
