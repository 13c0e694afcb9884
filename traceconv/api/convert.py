"""Convert one capture, format to format."""

from __future__ import annotations

from typing import Any

from traceconv.api import options
from traceconv.api.merge import merge
from traceconv.pipeline.report import Report


def convert(path: options.Paths, out: options.AnyPath, **given: Any) -> Report:
    """One capture to one file, with what is in it and nothing else.

    The capture goes through the model, which repairs what is damaged; ``mode`` is "source" and
    ``align`` is "none" unless other ones are given.

    Args:
        given: further arguments of :func:`traceconv.merge`.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    return merge(path, out=out, **{"mode": "source", "align": "none", "copy": False, **given})
