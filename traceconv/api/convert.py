"""Convert one capture, format to format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from traceconv.api.merge import merged
from traceconv.merging.run_report import Report
from traceconv.options.declaration import takes
from traceconv.options.values import AnyPath, Paths
from traceconv.options.verbs import ConvertRequest

if TYPE_CHECKING:
    from traceconv.options.arguments import ConvertArguments


@takes(ConvertRequest)
def convert(path: Paths, out: AnyPath, **keywords: Unpack[ConvertArguments]) -> Report:
    """One capture to one file, with what is in it and nothing else.

    A sound file of trace events that becomes one again keeps every member of every event. Any
    other capture goes through the model, which repairs what is damaged.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    request = ConvertRequest.of({"copy": False, **keywords, "out": out})
    return merged([path], request, keep="copy" not in keywords)
