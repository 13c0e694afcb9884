"""``traceconv explore``: what its server answers, and to whom."""

import gzip
import http.client
import json
import os
import queue
import re
import shutil
import socket
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from decoded import decode
from paths import ROOT

import traceconv
from traceconv.api.explore import Exploration, found_run
from traceconv.cli import explore as exploring
from traceconv.cli import open as viewer
from traceconv.cli import run, say
from traceconv.core.errors import OutputError, SourceError

JOB = str(ROOT / "examples" / "job")
VIEWER = "https://ui.perfetto.dev"
PAGE = exploring.PAGE


def printed(capsys, *words):
    """The JSON document of a command line."""
    capsys.readouterr()
    assert run(words) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def server():
    """The server of two runs, which are one."""
    one = traceconv.explore(JOB)
    compared = lambda: traceconv.diff(JOB, JOB, force_compare=True)  # noqa: E731
    with exploring.Explorer([one, one], compared, VIEWER, 0) as found:
        found.read(lambda done, total, label: None)
        with found.serving():
            yield found


@pytest.fixture
def asked(server):
    """Asks for a path below the secret one: (status, headers, content)."""

    def ask(path, method="GET", entry=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        named = {"Host": f"127.0.0.1:{server.server_port}"}
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        whole = (server.entry if entry is None else entry) + path
        connection.request(method, whole, headers=named | given)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers, content

    return ask


# -- who is answered -------------------------------------------------------------------------


def test_the_page_and_its_files_are_served_with_a_strict_policy(asked):
    """No inline script, nothing from elsewhere, in no frame."""
    status, headers, content = asked("")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    text = content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\bstyle=|\bon\w+=", text)
    for name in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert asked(name)[0] == 200
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_the_licences_of_the_library_are_beside_it():
    """As they ask."""
    assert (PAGE / "htm-preact.mjs").read_text()
    for name in ("htm", "preact"):
        assert "License" in (PAGE / f"LICENSE-{name}.txt").read_text()


def test_nothing_is_fetched_from_elsewhere():
    """The page works without a network."""
    for name in ("index.html", "app.js", "map.js", "style.css"):
        text = (PAGE / name).read_text()
        assert re.findall(r"https?://[^\s\"']+", text) == []
        assert ".innerHTML" not in text and "dangerouslySetInnerHTML" not in text


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example:9001"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": VIEWER}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
    ],
)
def test_other_sites_are_refused(asked, headers, expected):
    """The page, and what it is made of, is for people and for itself."""
    for path in ("", "run/0", "what-if/0?change=host:0"):
        status, _, content = asked(path, **headers)
        assert status == expected
        assert bool(content) == (expected == 200)


@pytest.mark.parametrize(
    "path",
    ["/", "/run/0", "/x/run/0", "//", "/" + "A" * 22 + "/", "/" + "A" * 22 + "/run/0"],
)
def test_nothing_is_there_without_the_secret(asked, path):
    """Whoever does not have the link gets nothing."""
    status, _, content = asked(path, entry="")
    assert (status, content) == (404, b"")


@pytest.mark.parametrize(
    "path",
    ["../app.js", "..%2f..%2fpyproject.toml", "app.py", "run", "run/", "run/2", "run/-1", "run/x",
     "run/00", "run/" + "9" * 4300, "run/0/x", "run/\u0661".encode().decode("latin-1"),
     "LICENSE-htm.txt", "app.js/"],
)  # fmt: skip
def test_other_paths_are_not_there(asked, path):
    """A closed list of files and documents."""
    assert asked(quote(path, safe="/%.-"))[0] == 404


def test_too_many_changes_are_refused(asked):
    """With an answer."""
    assert asked("what-if/0?" + "&".join(["change=host:0"] * 101))[0] == 400


def test_other_methods_are_refused(asked):
    """Nothing can be changed."""
    for method in ("POST", "PUT", "DELETE"):
        assert asked("run/0", method)[0] == 501


# -- what is answered ------------------------------------------------------------------------


def test_documents_are_those_of_the_command_line(asked, capsys):
    """One number per name: the page has no figures of its own."""
    assert json.loads(asked("run/0")[2]) == printed(capsys, "explore", JOB, "--json")
    assert json.loads(asked("diagnosis/0")[2]) == printed(capsys, "diagnose", JOB, "--json")
    changes = ["rank:5=peers", "comm:* x0.5"]
    query = "&".join(f"change={quote(one)}" for one in changes)
    replayed = printed(capsys, "what-if", JOB, *changes, "--json")
    assert {**replayed, **json.loads(asked(f"what-if/0?{query}")[2])} == replayed


def test_the_map_has_the_figures_of_the_verdict(asked):
    """The slow rank is the darkest row; its cause and its excess are those that are told."""
    document = json.loads(asked("run/0")[2])
    shown = document["map"]
    row = shown["excess_ns"][shown["ranks"].index(5)]
    culprit = traceconv.stragglers(JOB).verdict.culprits[0]
    assert sum(row) / len(row) == pytest.approx(culprit.excess_ns, rel=0.001)
    causes = {shown["causes"][one] for one in shown["cause"][5]}
    assert causes == {"computing"}
    assert [one["step"] for one in shown["steps"]] == list(range(10, 18))
    others = [max(r) for i, r in enumerate(shown["excess_ns"]) if i != 5]
    assert max(others) < min(row) / 10


def test_every_change_that_is_offered_is_understood(asked):
    """A factor of 1 changes nothing."""
    document = json.loads(asked("run/0")[2])
    for one in document["changes"]:
        status, _, content = asked(f"what-if/0?change={quote(one['change'].format(1))}")
        found = json.loads(content)
        assert status == 200
        if "{}" in one["change"]:
            assert found["step_if_ns"] == pytest.approx(document["step_ns"], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "offered"), [("it's", True), ("\u202eit", False), ("\x1b[2J", False)]
)
def test_names_that_act_on_a_terminal_are_not_offered(tmp_path, name, offered):
    """The page shows the command to copy; a quote in a name is quoted there."""
    for path in Path(JOB).iterdir():
        text = gzip.decompress(path.read_bytes()).decode()
        named = text.replace("sm90_xmma_gemm", json.dumps(name)[1:-1])
        (tmp_path / path.name).write_bytes(gzip.compress(named.encode(), 1))
    changes = [one["change"] for one in traceconv.explore(tmp_path, jobs=1).as_dict()["changes"]]
    assert any(name in change for change in changes) == offered
    assert any("multi_tensor_apply" in change for change in changes)


def test_a_window_is_made_for_the_viewer_alone(asked, server):
    """These steps of these ranks, under an address that only the viewer's page can fetch."""
    status, _, content = asked("window/0?ranks=4-5&steps=12")
    link = json.loads(content)["link"]
    assert status == 200 and link.startswith(f"{VIEWER}/#!/?")
    address = parse_qs(urlsplit(link.partition("#!")[2]).query)["url"][0]
    path = urlsplit(address).path
    assert server.entry not in path
    for origin in ("https://evil.example", None, server.origin):
        headers = {"Origin": origin} if origin else {}
        assert asked(path, entry="", **headers)[0] == 403
    status, headers, content = asked(path, entry="", Origin=VIEWER)
    assert status == 200 and headers["Access-Control-Allow-Origin"] == VIEWER
    file = server.traces[path]
    assert content == file.read_bytes()
    status, headers, content = asked(path, method="HEAD", entry="", Origin=VIEWER)
    assert (status, int(headers["Content-Length"]), content) == (200, file.stat().st_size, b"")
    names = set(decode(file).rows.name)
    assert {f"ProfilerStep#{n}" for n in range(10, 18)} & names == {"ProfilerStep#12"}
    assert [one.rank for one in traceconv.open(file)] == [4, 5]


@pytest.fixture
def changed(tmp_path):
    """Answers for a window of rank 0 after its file was changed: (status, document)."""

    def ask(change):
        shutil.copytree(JOB, tmp_path / "job")
        capture = next((tmp_path / "job").glob("*.0.pt.trace.json.gz"))
        with exploring.Explorer(
            [found_run(tmp_path / "job", {})], lambda: None, VIEWER, 0
        ) as server:
            change(capture)
            try:
                return server.window(server.runs[0], "0", "all")
            except SourceError as e:
                return str(e)

    return ask


def test_a_window_says_what_is_missing_in_it(changed, asked):
    """A file that was cut since the run was found; whole files have no remark."""
    line, *_ = changed(lambda path: path.write_bytes(path.read_bytes()[:2000]))["lost"]
    assert line.startswith("loss: truncated x1 in node0_4000.0.pt.trace.json.gz")
    assert json.loads(asked("window/0?ranks=0&steps=12")[2])["lost"] == []


def test_a_pipe_in_place_of_a_file_does_not_stop_the_server(changed):
    """The window is refused; nothing waits for the pipe."""

    def replace(path):
        path.unlink()
        os.mkfifo(path)

    assert "cannot open: not a regular file" in changed(replace)


def test_reports_of_a_part_have_their_own_policy(asked):
    """They may be shown in the page; the one script in them is named by its digest."""
    status, headers, content = asked("report/0?ranks=4-5&steps=12-13")
    assert status == 200 and headers["Content-Security-Policy"] == "frame-ancestors 'self'"
    assert b"Content-Security-Policy" in content and b"rank 5" in content
    assert asked("diff-report/0")[0] == 200
    assert "verdict" in json.loads(asked("diff/0")[2])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("what-if/0", "no change is given"),
        ("what-if/0?change=rank:99=peers", "no such rank"),
        ("what-if/0?change=nonsense", "is no"),
        ("window/0?ranks=77", "77"),
        ("window/0?ranks=;rm", "ranks"),
        ("report/0?steps=999", "999"),
    ],
)
def test_wrong_questions_are_explained(asked, path, told):
    """As the command line does, without a traceback."""
    status, _, content = asked(path)
    assert status == 422
    error = json.loads(content)["error"]
    assert told in error or "not a change" in error


# -- reading ---------------------------------------------------------------------------------


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A cache of this test; of new files, too."""
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("traceconv.store.cache.SETTLED_NS", 0)


def test_a_run_that_was_explored_is_shown_before_it_is_read(kept, monkeypatch):
    """What the first call showed is kept; other options make another."""
    first = traceconv.explore(JOB).as_dict()
    run = found_run(JOB, {})
    with exploring.Explorer([run], lambda: None, VIEWER, 0) as server:
        shown = []
        read = lambda run, progress: shown.append(server.about()["is_shown"])  # noqa: E731
        monkeypatch.setattr(Exploration, "read", read)
        server.read(lambda done, total, label: None)
        assert shown == [True] and server.about()["is_read"]
        assert json.loads(server.documents[JOB]) == say.flagged(first)
    assert found_run(JOB, {"align": "none"}).kept() is None
    assert found_run(JOB, {"cache": False}).kept() is None
    monkeypatch.setattr(Exploration, "read", None)
    assert found_run(JOB, {"jobs": 1}).as_dict() == first


def test_windows_are_made_while_the_run_is_read(kept):
    """What-if waits; how far reading is can be asked at any time."""
    run = found_run(JOB, {})
    with exploring.Explorer([run], lambda: None, VIEWER, 0) as server, server.serving():
        assert [server.about()[key] for key in ("is_shown", "is_read")] == [False, False]
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        host = {"Host": f"127.0.0.1:{server.server_port}"}
        for path, told in (
            ("about/0", b"reading"),
            ("run/0", b"null"),
            ("window/0?steps=11", b"link"),
        ):
            connection.request("GET", server.entry + path, headers=host)
            assert told in connection.getresponse().read()
        connection.request("GET", server.entry + "what-if/0?change=host:0", headers=host)
        server.read(lambda done, total, label: None)
        assert b"step_if_ns" in connection.getresponse().read()
        connection.close()


def test_who_goes_away_before_the_run_is_read_is_forgotten():
    """Reloads of the page do not use up the connections."""
    run = found_run(JOB, {})
    with exploring.Explorer([run], lambda: None, VIEWER, 0) as server, server.serving():
        request = f"GET {server.entry}diagnosis/0 HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}"
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", server.server_port)) as gone:
                gone.sendall(f"{request}\r\n\r\n".encode())
        until = time.monotonic() + 20
        for count in (3, 0):
            while len(server.served) != count and time.monotonic() < until:
                time.sleep(0.01)
        assert not server.served


# -- the command -----------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [False, True])
def test_the_link_is_printed_and_works(monkeypatch, taken):
    """Without a browser; a port that another user has costs the windows only."""
    links = queue.Queue()
    other = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(viewer, "PORT", other.getsockname()[1] if taken else 0)
    monkeypatch.setattr(say, "data", links.put)
    servers = []
    serve = exploring.Explorer.serve_forever

    def served(self, **options):
        servers.append(self)
        serve(self, poll_interval=0.01)

    monkeypatch.setattr(exploring.Explorer, "serve_forever", served)
    thread = threading.Thread(target=run, args=(["explore", JOB, "--no-browser", "-q"],))
    thread.start()
    link = urlsplit(links.get(timeout=30))
    assert re.fullmatch(r"/[\w-]{22}/", link.path)
    connection = http.client.HTTPConnection(link.netloc, timeout=10)
    connection.request("GET", link.path)
    assert connection.getresponse().status == 200
    connection.close()
    if taken:
        with pytest.raises(OutputError, match="needs port"):
            servers[0].window(servers[0].runs[0], "0", "10")
    other.close()
    servers[0].shutdown()
    thread.join(30)
    assert not thread.is_alive()


def test_more_than_two_runs_are_refused(capsys):
    """With what is possible."""
    assert run(["explore", JOB, JOB, JOB]) == 2
    assert "at most two runs" in capsys.readouterr().err
