"""A stand-in for ``trace_processor_shell``: the same questions over HTTP, answered by SQLite.

It parses traces with our own decoder, so it proves nothing of Perfetto's importer; it shows that we
start, ask, read and end such a program. ``python perfetto_stand_in.py FOLDER`` is called by the
script that :func:`script` writes; what it was told to do wrong is in the file ``FOLDER/wrong``.
"""

import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def script(folder, wrong=""):
    """A program of that name in ``folder``.

    Args:
        wrong: "refuse" the trace, "die" when asked, "fewer" slices, "errors" in the statistics,
            "never" start.
    """
    from paths import ROOT

    program = folder / "trace_processor_shell"
    (folder / "wrong").write_text(wrong)
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}:$PYTHONPATH" '
        f'exec "{sys.executable}" "{Path(__file__)}" "{folder}" "$@"\n'
    )
    program.chmod(0o755)
    return program


def _database(trace, wrong):
    from decoded import decode

    found = decode(trace)
    database = sqlite3.connect(":memory:")
    database.executescript(
        "CREATE TABLE slice (ts INTEGER, dur INTEGER); CREATE TABLE counter (ts INTEGER);"
        "CREATE TABLE flow (id INTEGER);"
        "CREATE TABLE stats (name TEXT, severity TEXT, value INTEGER);"
        "INSERT INTO stats VALUES ('fine', 'info', 5), ('none', 'error', 0);"
    )
    rows = list(zip(found.rows.ts.tolist(), found.rows.dur.tolist(), strict=True))
    database.executemany("INSERT INTO slice VALUES (?, ?)", rows[wrong == "fewer" :])
    database.executemany("INSERT INTO counter VALUES (?)", [[ts] for ts in found.counters.ts])
    database.executemany(
        "INSERT INTO flow VALUES (?)", [[i] for i in range(len(found.flows.source))]
    )
    if wrong == "errors":
        database.execute("INSERT INTO stats VALUES ('flow_no_enclosing_slice', 'data_loss', 3)")
    return database


def main(folder, port):
    """Serve one trace."""
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    wrong = (folder / "wrong").read_text()
    if wrong == "never":
        sys.exit("cannot start here")
    protos = ProtoFactory(PlatformDelegate())
    (folder / "pid").write_text(str(__import__("os").getpid()))
    state = {}
    trace = (folder / "received").open("wb")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, content):
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self):
            if self.path == "/notify_eof":
                trace.close()
                state["db"] = _database(folder / "received", wrong)
            self.reply(b"")

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/parse":
                trace.write(body)
                result = protos.AppendTraceDataResult()
                if wrong == "refuse":
                    result.error = "Unknown trace type provided"
                self.reply(result.SerializeToString())
                return
            if wrong == "die":
                __import__("os")._exit(9)
            question = protos.QueryArgs()
            question.ParseFromString(body)
            self.reply(_answer(protos, state["db"], question.sql_query).SerializeToString())

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


def _answer(protos, database, sql):
    result = protos.QueryResult()
    try:
        cursor = database.execute(sql)
        rows = cursor.fetchall()
    except sqlite3.Error as e:
        result.error = f"Traceback (most recent call last):\n{e}"
        return result
    result.column_names.extend(name for name, *_ in cursor.description)
    batch, texts = result.batch.add(), []
    for cell in (cell for row in rows for cell in row):
        if cell is None:
            batch.cells.append(1)
        elif isinstance(cell, int):
            batch.cells.append(2)
            batch.varint_cells.append(cell)
        elif isinstance(cell, float):
            batch.cells.append(3)
            batch.float64_cells.append(cell)
        elif isinstance(cell, str):
            batch.cells.append(4)
            texts.append(f"{cell}\0")
        else:
            batch.cells.append(5)
            batch.blob_cells.append(cell)
    batch.string_cells = "".join(texts)
    batch.is_last_batch = True
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[sys.argv.index("--http-port") + 1]))
