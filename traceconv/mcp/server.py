"""The tools over the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import atexit
import logging
import os
import signal
from typing import TYPE_CHECKING, NoReturn

from traceconv.core.errors import MissingExtraError, extra_line
from traceconv.core.version import __version__
from traceconv.mcp.tools import INSTRUCTIONS, Tools
from traceconv.mcp.workspace import Workspace

if TYPE_CHECKING:
    from mcp.server import MCPServer


def server(workspace: Workspace) -> MCPServer:
    """The server of a session.

    Raises:
        MissingExtraError: the package ``mcp`` is not installed, or too old.
    """
    try:
        from mcp.server import MCPServer
    except ImportError as e:
        raise MissingExtraError(f"mcp 2 is not installed; {extra_line('mcp')}") from e
    mcp_server = MCPServer("traceconv", instructions=INSTRUCTIONS, version=__version__)
    logging.getLogger("mcp").setLevel(logging.ERROR)  # else it logs every error, with its traceback
    for name, tool in Tools(workspace).every().items():
        mcp_server.add_tool(tool, name=name, structured_output=False)
    return mcp_server


def serve(workspace: Workspace) -> None:
    """Answer on standard input and output until the client goes away or a signal comes."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as by nohup
            signal.signal(number, _end)
    server(workspace).run("stdio")


def _end(number: int, _: object) -> NoReturn:
    """End at once: an exception would wait for the thread that reads standard input."""
    atexit._run_exitfuncs()  # temporary files are removed
    os._exit(128 + number)
