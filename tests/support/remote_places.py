"""Remote storage on this machine: files in memory, and an S3 server in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import fsspec


def memory() -> Any:
    """The file system behind ``memory://``, empty."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    return fs


def put(fs: Any, folder: Path, to: str) -> None:
    """Every file below a local folder."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        fs.pipe_file(f"{to}/{path.relative_to(folder).as_posix()}", path.read_bytes())


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of an S3 server that holds nothing."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield _answering(f"http://127.0.0.1:{port}", server)
    finally:
        server.terminate()
        server.wait()


def _answering(address: str, server: subprocess.Popen[bytes]) -> str:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{address}/moto-api/data.json", timeout=5):
                return address
        except OSError:
            assert server.poll() is None, "the S3 server has died"
            time.sleep(0.1)
    raise AssertionError("the S3 server does not answer")
