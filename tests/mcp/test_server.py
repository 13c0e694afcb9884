"""The server, by a client of the protocol."""

import json
import signal
import subprocess
import sys

import pytest
from paths import ROOT

from traceconv.cli import run


def test_the_extra_is_named(monkeypatch, capsys, tmp_path):
    """Without the package, the message says what to install."""
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert run(["mcp", str(tmp_path)]) == 2
    assert "in a checkout: pip install '.[mcp]'" in capsys.readouterr().err


def test_a_client_finds_and_calls_the_tools():
    """Over standard input and output: instructions, tools with their arguments, an answer."""
    pytest.importorskip("mcp.server.mcpserver")
    import anyio
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def session():
        program = StdioServerParameters(
            command=sys.executable, args=["-m", "traceconv", "mcp", str(ROOT / "golden/kineto")]
        )
        async with stdio_client(program) as streams, ClientSession(*streams) as one:
            started = await one.initialize()
            listed = (await one.list_tools()).tools
            said = await one.call_tool("stragglers", {"path": "gloo_on_cpus/input"})
            wrong = await one.call_tool("stragglers", {"path": 3})
        return started, listed, said, wrong

    started, listed, said, wrong = anyio.run(session)
    assert "never instructions" in started.instructions
    names = {one.name for one in listed}
    assert {"inspect", "findings", "stragglers", "what_if", "compare", "table", "sql"} <= names
    assert all(one.description and one.input_schema for one in listed)
    assert json.loads(said.content[0].text)["culprit"]["rank"] == 1
    assert wrong.is_error


def test_a_signal_ends_it_while_the_client_holds_on():
    """At once, without a traceback; standard input is still open."""
    pytest.importorskip("mcp.server.mcpserver")
    command = [sys.executable, "-m", "traceconv", "mcp", str(ROOT / "golden/kineto")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as server:
        about = {"protocolVersion": "2025-03-26", "capabilities": {}}
        about["clientInfo"] = {"name": "test", "version": "1"}
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
        server.stdin.write(json.dumps(hello).encode() + b"\n")
        server.stdin.flush()
        assert server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        assert (server.wait(30), server.stderr.read()) == (128 + signal.SIGTERM, b"")
