"""``traceconv mcp``: the analyses as tools for agents."""

from __future__ import annotations

from pathlib import Path

import click

from traceconv.cli import options


@click.command(cls=options.Command, short_help="Serve the analyses to agents (MCP).")
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
@options.option(
    "--output",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    section="Output",
    usual=True,
    help="Folder in which windows of traces may be written. Without it none are.",
)
@options.option(
    "--redact",
    is_flag=True,
    section="Output",
    usual=True,
    help="Replace the names of hosts, files and events, each by the same word in all answers.",
)
def mcp(root: Path, output: Path | None, redact: bool) -> None:
    """Answer an agent by the Model Context Protocol on standard input and output. It can read files
    below ROOT (default: the current folder), and nothing else.

    \b
    traceconv mcp ./prof
    traceconv mcp ./prof --output ./windows --redact
    """
    from traceconv.mcp.server import serve
    from traceconv.mcp.workspace import Workspace

    serve(Workspace(root, output, redact))
