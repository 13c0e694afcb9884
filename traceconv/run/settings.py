"""What a run is asked for: what is kept, what decides on the bytes, and who does the work.

These classes hold values that have been checked; :mod:`traceconv.api.options` makes them from what
people type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import msgspec

from traceconv.core.job_shape import ByCoordinates
from traceconv.writers.output import Progress, silent
from traceconv.writers.size_limit import SizeLimit

Layout = Literal["rank", "lane"]
Mode = Literal["summary", "detail", "source"]
LayerName = Literal[
    "step", "overlap", "host", "runtime", "scope", "device", "comm", "counter", "other"
]
AlignMethod = Literal["auto", "collective", "meta", "wall", "none"]
EngineName = Literal["local", "dask", "ray"]
OverLimit = Literal["reduce", "split", "fail"]


@dataclass(frozen=True)
class Selection:
    """What is kept of a run; filters are combined with AND, and None keeps everything.

    Attributes:
        ranks:   global ranks, or those at coordinates.
        graphs:  graph ids.
        steps:   step numbers.
        time:    (start, end) in ns, counted from the earliest event of all ranks; None = open.
        layers:  names of :class:`~traceconv.core.model.Layer`.
        exclude: regular expression; events whose name it finds are left out.
    """

    ranks: tuple[int, ...] | ByCoordinates | None = None
    graphs: tuple[int, ...] | None = None
    steps: tuple[int, ...] | None = None
    time: tuple[int | None, int | None] | None = None
    layers: tuple[LayerName, ...] | None = None
    exclude: str | None = None

    @property
    def numbers(self) -> dict[str, tuple[int, ...] | None]:
        """Graphs and steps, as :func:`traceconv.find.rank_selection.refuse_missing` takes them."""
        return {"graph": self.graphs, "step": self.steps}


@dataclass(frozen=True)
class MergeOptions:
    """What decides on the bytes of a merge, besides its input; see :func:`traceconv.merge`."""

    mode: Mode = "summary"
    selection: Selection = Selection()
    merge_graphs: bool = True
    scope: bool = False
    args: tuple[str, ...] | None = None
    align: str = "auto"
    align_max_error_ns: int | None = None
    limit: SizeLimit | None = None
    comm_patterns: tuple[str, ...] = ()
    step_marker: str | None = None
    annotate: bool = False
    analyse: bool = False
    layout: Layout = "rank"

    @property
    def view(self) -> dict[str, Any]:
        """Arguments of :func:`traceconv.passes.compose`."""
        selection = self.selection
        return {
            "mode": None if self.mode == "source" else self.mode,
            "graphs": selection.graphs,
            "steps": selection.steps,
            "merge_graphs": self.merge_graphs,
            "step_marker": self.step_marker,
            "scope": self.scope,
            "layers": selection.layers,
            "exclude": selection.exclude,
        }

    @property
    def summarizes(self) -> bool:
        """Whether the analyses look at every rank."""
        return self.annotate or self.analyse

    @property
    def of_any_rank(self) -> MergeOptions:
        """The same of all ranks: what decides on the bytes of each."""
        return replace(self, selection=replace(self.selection, ranks=None))

    def as_dict(self) -> dict[str, Any]:
        """JSON values, for shards."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def of_dict(cls, plain: Mapping[str, Any]) -> MergeOptions:
        """What :meth:`as_dict` made.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(plain, Mapping) or set(plain) != {one.name for one in fields(cls)}:
            raise ValueError("not the options of a merge")
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as e:
            raise ValueError(str(e)) from e


@dataclass(frozen=True)
class RunOptions:
    """Who does the work, and how failures are treated. No result depends on the first four.

    Attributes:
        jobs:      workers, and threads where ranks are fewer; None for as many as suit the machine
            and the input.
        mem_limit: bytes of memory this process and its workers may take; None for no limit.
        engine:    who runs the workers.
        engine_address: of a running cluster; None for one of our own.
        allow_missing_ranks: go on without ranks that are not there or cannot be read.
        progress:  called as (done since the last call, expected in all or 0, label).
    """

    jobs: int | None = None
    mem_limit: int | None = None
    engine: EngineName = "local"
    engine_address: str | None = None
    allow_missing_ranks: bool = False
    progress: Progress = field(default=silent, compare=False)
