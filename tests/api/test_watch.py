"""``traceconv watch``: windows are judged once they are complete, as they would be offline."""

import http.client
import json
import os
import re
import shutil
import threading
import time
import zipfile

import pytest
from paths import ROOT

import traceconv
from traceconv.api import watch as watching
from traceconv.cli import run
from traceconv.report import openmetrics

FILES = sorted((ROOT / "examples" / "job").glob("*.gz"))
FIGURES = {
    "step_ns": 1, "slowdown": 1.0, "computing_share": 1.0, "verdict": "straggler",
    "straggler_rank": 3, "straggler_gain_ns": 5,
}  # fmt: skip
FIRST_NS = 1_740_816_000_000_000_000


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Files settle in no time."""
    monkeypatch.setattr(watching, "POLL_S", 0.01)
    monkeypatch.setattr(watching, "SETTLED_S", 0.05)
    monkeypatch.setattr(watching, "QUIET_S", 0.05)


def write(folder, window, *ranks):
    """The captures of some ranks; their names state when they were recorded."""
    for rank in ranks:
        at = FIRST_NS + window * 30_000_000_000 + rank * 1_000_000
        shutil.copyfile(FILES[rank], folder / f"host_{rank}.{at}.pt.trace.json.gz")


def until(folder, count, meanwhile=lambda: None, **options):
    """The first windows; something happens while the first of them is awaited."""
    threading.Timer(0.2, meanwhile).start()
    found = traceconv.watch(folder, **{"timeout_ns": "30s", "world_size": 2, **options})
    return [next(found) for _ in range(count)]


def test_windows_are_judged_as_they_appear_and_as_offline(tmp_path):
    """Two windows: each verdict, and all of the document, is that of ``diagnose`` on its files."""
    write(tmp_path, 1, 4, 5)

    def later():
        write(tmp_path, 2, 4, 5)

    first, second = until(tmp_path, 2, later, world_size=None, timeout_ns="300ms")
    assert [one.number for one in (first, second)] == [1, 2]
    assert first.ranks == second.ranks == (4, 5)
    assert set(first.paths).isdisjoint(second.paths)
    offline = traceconv.diagnose(*second.paths)
    assert second.as_dict()["diagnosis"] == offline.as_dict()
    assert second.line().startswith(f"window 2: {offline.headline}")
    assert second.figures()["straggler_rank"] == offline.verdict.culprits[0].rank == 5
    # the captures say that the job has 8 ranks; the first window had to do without 6 of them
    assert first.missing == second.missing == (0, 1, 2, 3, 6, 7)


def test_a_rank_that_does_not_come_is_said(tmp_path):
    """After a timeout; it is not waited for again, and is in the window in which it comes back."""
    write(tmp_path, 1, 0, 1)
    found = traceconv.watch(tmp_path, timeout_ns="300ms")
    assert next(found).missing == (2, 3, 4, 5, 6, 7)  # the captures say that there are 8
    write(tmp_path, 2, 0)
    assert next(found).missing == (1, 2, 3, 4, 5, 6, 7)
    write(tmp_path, 3, 0, 1)
    back = next(found)
    assert (back.ranks, back.missing) == ((0, 1), (2, 3, 4, 5, 6, 7))


def test_a_file_that_only_got_another_time_is_no_window(tmp_path):
    """As copies and restored files do."""
    write(tmp_path, 1, 0, 1)
    found = traceconv.watch(tmp_path, timeout_ns="300ms", world_size=2)
    next(found)
    for path in tmp_path.iterdir():
        os.utime(path)
    write(tmp_path, 2, 0, 1)
    second = next(found)
    assert (second.number, second.ranks) == (2, (0, 1))
    assert all(str(FIRST_NS + 60_000_000_000)[:9] in path for path in second.paths)


def test_a_trace_that_cannot_be_written_is_said(tmp_path):
    """The window is judged; its line says what is lost."""
    write(tmp_path, 1, 0, 1)
    (tmp_path / "out").write_text("no folder")
    (window,) = traceconv.watch(tmp_path, once=True, world_size=2, out=str(tmp_path / "out"))
    assert window.diagnosis and window.trace == ""
    assert "; no trace: " in window.line()


def test_a_file_that_is_still_written_is_waited_for(tmp_path):
    """Its rank has come when it has stopped growing, and is whole."""
    write(tmp_path, 1, 0)
    whole = FILES[1].read_bytes()
    part = tmp_path / f"host_1.{FIRST_NS}.pt.trace.json.gz"
    part.write_bytes(whole[: len(whole) // 2])

    def later():
        part.write_bytes(whole)

    (one,) = until(tmp_path, 1, later)
    assert one.ranks == (0, 1) and not one.error
    assert one.as_dict()["diagnosis"] == traceconv.diagnose(*one.paths).as_dict()


def test_names_with_rank_and_time_are_told_apart_by_time(tmp_path):
    """Files of ``torch_handler``: no two ranks end their window at the same nanosecond."""
    for window in range(2):
        for rank in range(2):
            at = FIRST_NS + window * 3_000_000_000 + rank * 10_000_000
            shutil.copyfile(FILES[rank], tmp_path / f"rank{rank}.{at}.pt.trace.json.gz")
    found = list(traceconv.watch(tmp_path, once=True, world_size=2))
    assert [one.ranks for one in found] == [(0, 1)] * 2


def test_windows_in_folders_are_told_apart_by_name(tmp_path):
    """Copied files have the time of the copy: folders of iterations say what belongs together."""
    for number in (10, 20):
        folder = tmp_path / f"iteration_{number}"
        folder.mkdir()
        for rank in (1, 0):
            shutil.copyfile(FILES[rank], folder / f"rank{rank}_trace.json.gz")
    found = list(traceconv.watch(tmp_path, once=True))
    assert [one.ranks for one in found] == [(0, 1)] * 2
    assert all(len({path.split("/")[-2] for path in one.paths}) == 1 for one in found)


def test_what_cannot_be_read_is_said_and_watching_goes_on(tmp_path):
    """A window of damaged files is a line like others."""
    found = traceconv.watch(tmp_path, world_size=2, timeout_ns="300ms")
    for rank in (0, 1):
        at = FIRST_NS + rank
        (tmp_path / f"host_{rank}.{at}.pt.trace.json.gz").write_bytes(b"\x1f\x8b\x08" + bytes(40))
    shutil.copyfile(FILES[0], tmp_path / f"host_0.{FIRST_NS + 10**12}.pt.trace.json.gz")
    shutil.copyfile(FILES[1], tmp_path / f"host_1.{FIRST_NS + 10**12}.pt.trace.json.gz")
    good, bad = next(found), next(found)
    assert good.ranks == (0, 1) and good.diagnosis is not None
    assert bad.diagnosis is None and bad.line().startswith("window 2: cannot be judged: ")


def test_memory_and_files_do_not_grow_with_windows(tmp_path):
    """What was judged and removed is forgotten; a rewritten file is a new window."""
    found = traceconv.watch(tmp_path, world_size=1, timeout_ns="300ms")
    one = tmp_path / "rank0.json.gz"
    for number in (1, 2):
        shutil.copyfile(FILES[number], one)
        assert next(found).number == number
        time.sleep(0.01)  # another time of change
    state = found.gi_frame.f_locals["self"]
    one.unlink()
    state._new_files(time.monotonic())
    assert not state.judged and not state.samples and not state.changed


def test_a_trace_is_written_for_each_window(tmp_path):
    """It is that of ``merge``, and no input of the next window."""
    write(tmp_path, 1, 0, 1)
    out = tmp_path / "traces"
    out.mkdir()
    (one,) = traceconv.watch(tmp_path, once=True, out=out)
    traceconv.merge(*one.paths, out=str(tmp_path / "offline.pftrace"))
    assert (out / "window-00001.pftrace").read_bytes() == (
        tmp_path / "offline.pftrace"
    ).read_bytes()


def test_a_log_that_grows_all_the_time_does_not_hold_up_the_verdict(tmp_path, monkeypatch):
    """Once: it is waited for as long as for a rank. Else: it belongs to no window."""
    write(tmp_path, 1, 0, 1)
    log = tmp_path / "host_0.log"
    beside, ended = tmp_path / f"host_1.{FIRST_NS}0.log", threading.Event()

    def grow():
        while not ended.wait(0.005):
            for path in (log, beside):
                with path.open("a") as file:
                    file.write("x\n")

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        (one,) = traceconv.watch(tmp_path, once=True, timeout_ns="200ms")
        other = next(traceconv.watch(tmp_path, world_size=2, timeout_ns="30s"))
    finally:
        ended.set()
        writer.join()
    assert one.ranks == other.ranks == (0, 1)


def test_what_nothing_reads_is_said_at_once_or_waited_for(tmp_path, capsys):
    """Archives are named by their users; a job may write its first window later."""
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(FILES[0], "rank0.json.gz")
    assert run(["watch", str(tmp_path), "--once"]) == 3
    assert "name the archive itself" in capsys.readouterr().err
    (window,) = until(tmp_path, 1, lambda: write(tmp_path, 1, 0, 1))
    assert window.ranks == (0, 1)


def test_only_folders_of_this_machine(tmp_path, capsys):
    """With what to do instead."""
    with pytest.raises(traceconv.SourceError, match="not a local folder"):
        traceconv.watch("s3://bucket/prof")
    assert run(["watch", str(tmp_path / "missing")]) == 3
    assert "missing: no such folder" in capsys.readouterr().err


# -- the command -----------------------------------------------------------------------------


def test_lines_and_documents(tmp_path, capsys):
    """A line of the terminal, and the document of the same window."""
    write(tmp_path, 1, 4, 5)
    assert run(["watch", str(tmp_path), "--once"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("window 1: Rank 5 (dp2 tp1) costs 1.")
    assert printed.out.count("\n") == 1 and "1 window judged" in printed.err
    assert run(["watch", str(tmp_path), "--once", "--json", "-q"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert document["text"] == printed.out.strip()
    assert document["figures"]["verdict"] == "straggler"


@pytest.mark.parametrize("where", ["0", "localhost:0", "127.0.0.2:0"])
def test_metrics_are_served_on_the_loopback_interface(where, tmp_path, monkeypatch, capsys):
    """What Prometheus reads while the command runs; not under a foreign name."""
    write(tmp_path, 1, 4, 5)
    served = []

    def windows(*arguments, **options):
        (one,) = traceconv.api.watch.watch(*arguments, **{**options, "once": True})
        yield one
        address = capsys.readouterr().err.split("http://")[1].split("/")[0]
        for host in (address, "metrics.example:80", f"[::1]:{address.partition(':')[2]}"):
            connection = http.client.HTTPConnection(address, timeout=10)
            connection.request("GET", "/metrics", headers={"Host": host})
            answer = connection.getresponse()
            served.append((answer.status, answer.headers["Content-Type"], answer.read().decode()))
            connection.close()

    monkeypatch.setattr(traceconv, "watch", windows, raising=False)
    assert run(["watch", str(tmp_path), "--openmetrics", where]) == 0
    (status, kind, text), (refused, _, nothing), (other, *_) = served
    assert (status, refused, nothing, other) == (200, 403, "", 200)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert "traceconv_windows_total 1\n" in text and "traceconv_straggler_rank 5\n" in text


@pytest.mark.parametrize("value", ["", "x", "70000", "9" * 5000, "1.2.3.4:", "a b:1"])
def test_addresses_that_are_none(value, tmp_path, capsys):
    """With what one looks like."""
    assert run(["watch", str(tmp_path), "--openmetrics", value]) == 2
    assert "is not a port like 9464" in capsys.readouterr().err


def test_the_dashboard_shows_metrics_that_are_served():
    """Every query names one of them."""
    document = {"window": 1, "ranks": [0], "missing_ranks": [], "waited_s": 1.0, "figures": FIGURES}
    served = set(re.findall(r"(?m)^(traceconv_\w+)", openmetrics.text(document, 1, 0)))
    dashboard = json.loads((ROOT / "examples" / "grafana" / "traceconv.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert set(queries) <= served
    guide = (ROOT / "docs" / "guide" / "watch.md").read_text()
    assert set(re.findall(r"`(traceconv_\w+)", guide)) | {"traceconv_last_window"} == served
