"""Files that record how graphs were captured.

While a stream is captured, a launch adds a node to a graph and nothing runs. A replay then runs all
nodes for one call, so that no operator launches its kernels. Servers of language models write a
trace of the capture next to that of the passes: vLLM as ``graph_capture_rank_<n>…``, TraceLens'
patches of vLLM, SGLang and xDiT with a list ``execution_details.json`` of file, batch size and
mode.
PyTorch 2.12 and later can name nodes by their id (``kernel_annotations_rank<n>_….json``, written
for ``torch/cuda/_annotate_cuda_graph_trace.py``). :mod:`.graph_nodes` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from traceconv.core.errors import SourceError
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source

NO_WINDOW = "how a graph was captured; not a window of the rank"
LIST = "lists captures of graphs"
ANNOTATIONS = "names nodes of graphs"
USES = (
    ("graph_capture_rank_*.pt.trace.json[.gz]", NO_WINDOW),
    ("execution_details.json", LIST),
    ("kernel_annotations_rank*.json", ANNOTATIONS),
)
"""Files that are known and not read for events, and their use."""

_NAMED = lazy_regex(r"graph_capture_rank_\d+\b.*")
_ANNOTATIONS = lazy_regex(r"kernel_annotations_rank\d+_.*\.json")
_RANK = lazy_regex(r"rank[_-]?(\d{1,18})(?!\d)")
_LARGEST = 64 << 20


def captures_among(source: Source, names: Sequence[str]) -> dict[str, str]:
    """The files that say how graphs were captured, and why each is not read for events."""
    reasons = {}
    for name in names:
        base = PurePosixPath(name).name
        if _NAMED.match(base):
            reasons[name] = NO_WINDOW
        elif _ANNOTATIONS.fullmatch(base):
            reasons[name] = ANNOTATIONS
        elif base == "execution_details.json":
            reasons[name] = LIST
            reasons |= dict.fromkeys(listed_sizes(source, name), NO_WINDOW)
    return {name: why for name, why in reasons.items() if name in names}


def of_rank(files: Mapping[str, str], rank: int | None) -> dict[str, str]:
    """The files of a rank: by their names, else those of all ranks."""
    ranks = {name: _RANK.findall(PurePosixPath(name).name) for name in files}
    of_other_ranks = {
        name for name, numbers in ranks.items() if numbers and rank != int(numbers[-1])
    }
    return {name: why for name, why in files.items() if name not in of_other_ranks} or dict(files)


def listed_sizes(source: Source, name: str) -> dict[str, int | None]:
    """The files of a list of captures, and the batch size of each; None if it states none."""
    entries = json_of(source, name)
    folder = PurePosixPath(name).parent
    return {
        str(folder / file): size if isinstance(size := entry.get("batch_size"), int) else None
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(file := entry.get("file"), str)
    }


def json_of(source: Source, name: str) -> Any:
    """The content of a small file; None if it cannot be read."""
    try:
        return json.loads(source.read(name, _LARGEST))
    except (ValueError, RecursionError, SourceError):
        return None
