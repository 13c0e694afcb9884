"""Convert one capture, format to format."""

from __future__ import annotations

from typing import Unpack

from traceconv.api import options
from traceconv.api.merge import merge
from traceconv.api.reading import RankArguments
from traceconv.merging.run_report import Report
from traceconv.run.settings import Layout, MergeOptions, Mode, OverLimit, Selection


class MergeArguments(RankArguments, total=False):
    """Arguments of :func:`traceconv.merge` by keyword, but for the output."""

    ranks: options.Ranks | None
    mode: Mode | None
    graphs: options.Numbers | None
    steps: options.Numbers | None
    time: options.Window | None
    layers: options.Layers | None
    exclude: str | None
    selection: Selection | None
    merge_graphs: bool
    scope: bool
    args: options.Names | None
    annotate: bool
    analyse: bool
    layout: Layout
    align: options.Align
    align_max_error_ns: options.Length | None
    limit: options.Limit | None
    over_limit: OverLimit
    step_marker: str | None
    merge_options: MergeOptions | None
    writer: str | None
    strict: bool
    force: bool
    dry_run: bool
    shard: options.Shard | None
    copy: bool


def convert(path: options.Paths, out: options.AnyPath, **given: Unpack[MergeArguments]) -> Report:
    """One capture to one file, with what is in it and nothing else.

    The capture goes through the model, which repairs what is damaged; ``mode`` is "source" and
    ``align`` is "none" unless other ones are given.

    Args:
        given: further arguments of :func:`traceconv.merge`.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    arguments: MergeArguments = {"mode": "source", "align": "none", "copy": False}
    arguments.update(given)
    return merge(path, out=out, **arguments)
