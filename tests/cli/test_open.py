"""``traceconv open``: the link, what is given to whom, and when it ends."""

import http.client
import json
import os
import queue
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from decoded import decode
from paths import ROOT

import traceconv
from traceconv.cli import open as viewer
from traceconv.cli import run, say
from traceconv.io import loopback

SAMPLE = str(ROOT / "golden" / "trace_view" / "demo" / "input")
PAGE = "https://ui.perfetto.dev"
STABLE = [
    f"dev.perfetto.{name}"
    for name in ("CopyTracksToWorkspaceByRegex", "SwitchWorkspace", "ExpandTracksByRegex",
                 "AddDebugSliceTrackWithPivot")
]  # fmt: skip
"""Of the reference of commands for automation, in the order in which they have to run."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A merged trace with a name that needs quoting."""
    path = tmp_path_factory.mktemp("open") / "two ranks?&#é.pftrace"
    assert run(["merge", SAMPLE, "-q", "-o", str(path)]) == 0
    return path


@pytest.fixture
def started(monkeypatch):
    """Runs a command line beside the test; gives its link, and later its exit code."""
    links, codes = queue.Queue(), queue.Queue()
    monkeypatch.setattr(viewer, "PORT", 0)
    monkeypatch.setattr(say, "data", links.put)
    threads = []

    def start(*words):
        thread = threading.Thread(target=lambda: codes.put(run(words)))
        thread.start()
        threads.append(thread)
        return led_to(links.get(timeout=30)), lambda: codes.get(timeout=30)

    yield start
    for thread in threads:
        thread.join(30)


def led_to(address):
    """The link of the viewer that a short one of this machine leads to."""
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", address)
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    connection.request("GET", urlsplit(address).path)
    answer = connection.getresponse()
    connection.close()
    assert answer.status == 302
    return answer.headers["Location"]


def given_in(link):
    """The address of the viewer, and what the link tells it, as its router reads links."""
    page, _, route = link.partition("#!")
    return page, {key: one for key, (one,) in parse_qs(urlsplit(route).query).items()}


def fetched(url, method="GET", **headers):
    """(status, headers, body) of a request."""
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.headers, e.read()


def wait_for(held):
    """Until something is true that another thread does."""
    end = time.monotonic() + 10
    while not held() and time.monotonic() < end:
        time.sleep(0.01)
    assert held()


# -- the whole of it -----------------------------------------------------------------------


def test_the_file_is_given_once_and_the_command_ends(started, trace):
    """The link names the file; who follows it gets every byte, with leave for that page only."""
    link, code = started("open", str(trace), "--no-browser", "-q")
    page, told = given_in(link)
    assert page == PAGE + "/"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/[\w.%-]+", told["url"])
    status, headers, body = fetched(told["url"], Origin=PAGE)
    assert (status, body) == (200, trace.read_bytes())
    assert headers["Access-Control-Allow-Origin"] == PAGE
    assert code() == 0
    with pytest.raises(urllib.error.URLError):
        fetched(told["url"])


def test_merge_opens_what_it_wrote(started, tmp_path):
    """With a viewer of one's own."""
    out = tmp_path / "x.json"
    words = ["--open", "--no-browser", "--ui", "https://Traces.example:8443/perfetto/", "-q"]
    link, code = started("merge", SAMPLE, "-o", str(out), *words)
    page, told = given_in(link)
    assert page == "https://traces.example:8443/perfetto/"
    _, headers, body = fetched(told["url"], Origin="https://traces.example:8443")
    assert body == out.read_bytes()
    assert headers["Access-Control-Allow-Origin"] == "https://traces.example:8443"
    assert code() == 0


def known_to_the_merge(trace):
    """As a merge knows it, of what the trace was made of."""
    return viewer.view_of(traceconv.merge(SAMPLE, out=str(trace), force=True), by_rank=True)


@pytest.mark.parametrize("view", [viewer.view_in, known_to_the_merge])
def test_the_viewer_is_told_what_to_show(trace, view):
    """Stable commands only, a pattern that meets the names in the trace, steps within it."""
    _, told = given_in(viewer.link(PAGE, "http://127.0.0.1:9001/t", view(trace)))
    given = json.loads(told["startupCommands"])
    commands = {one["id"]: one["args"] for one in given}
    assert list(commands) == STABLE
    seen = decode(trace)
    roots = sorted({track.path[0] for track in seen.tracks})
    moved = [one["args"][0] for one in given if one["id"] == STABLE[0]]
    assert [[n for n in roots if re.search(one, n)] for one in moved] == [["Rank 0"], ["Rank 1"]]
    [pattern] = commands["dev.perfetto.ExpandTracksByRegex"]
    names = {name for track in seen.tracks for name in track.path}
    assert {"Rank 0", "Rank 1", "Timeline"} <= {n for n in names if re.search(pattern, n)}
    sql, pivot, title = commands["dev.perfetto.AddDebugSliceTrackWithPivot"]
    assert re.match(rf"SELECT ts, dur, name, {pivot} FROM ", sql) and title == "Steps"
    first, last = int(told["visStart"]), int(told["visEnd"])
    on_steps = [n for n, path in enumerate(seen.slices.track) if "Step Trace" in path[-1]]
    ends = (seen.slices.ts + seen.slices.dur)[on_steps]
    assert seen.slices.ts[on_steps].min() <= first < last <= ends.max()
    assert last - first > 0.8 * (ends.max() - seen.slices.ts[on_steps].min())


def test_a_file_that_is_no_trace_is_opened_as_it_is(tmp_path):
    """The viewer knows more formats than we do; nothing is said of steps."""
    (tmp_path / "x.systrace").write_text("# tracer: nop\n")
    _, told = given_in(
        viewer.link(PAGE, "http://127.0.0.1:9001/x", viewer.view_in(tmp_path / "x.systrace"))
    )
    assert set(told) == {"url", "startupCommands"}


def test_lanes_of_all_ranks_need_no_pins(tmp_path):
    """Their steps are on top as they are, the rank that others wait for first."""
    out = tmp_path / "x.pftrace"
    report = traceconv.merge(SAMPLE, out=str(out), layout="lane")
    for view in (viewer.view_in(out), viewer.view_of(report, by_rank=False)):
        assert view.window and not view.pinned and not view.ranks


def test_a_large_trace_has_its_ranks_in_order(trace, monkeypatch):
    """And their steps pinned; only where they are is not looked up."""
    monkeypatch.setattr(viewer, "LOOKED_AT", 1000)
    assert viewer.view_in(trace) == viewer.View([0, 1], True, None, few=True)


def test_streams_of_few_ranks_are_open():
    """Of many there would be no end."""
    shown = [
        json.loads(given_in(viewer.link(PAGE, "x", viewer.View(few=few)))[1]["startupCommands"])
        for few in (False, True)
    ]
    opened = [bool(re.search(one[0]["args"][0], "Ascend Hardware")) for one in shown]
    assert opened == [False, True]


def test_what_stands_for_all_is_no_step(tmp_path):
    """Nothing to pin, nowhere to zoom to; one rank needs no order."""
    out, log = tmp_path / "x.pftrace", tmp_path / "rank2.jsonl"
    log.write_text('{"name": "k", "ts": 10, "dur": 5}\n{"name": "k", "ts": 20, "dur": 5}\n')
    report = traceconv.merge(str(log), out=str(out))
    assert viewer.view_in(out) == viewer.view_of(report, by_rank=True) == viewer.View()


# -- who gets it, and who does not ---------------------------------------------------------


@pytest.fixture
def offer(trace):
    """The trace on a free port, answered by a thread until the test ends."""
    with loopback.offered(trace, PAGE, 0) as offer:
        thread = threading.Thread(target=offer.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield offer
        offer.shutdown()
        thread.join(10)


@pytest.mark.parametrize(
    "path",
    ["/", "/x", "/../etc/passwd", "//etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/.", "*", "/?a=b"],
)
def test_only_one_path_is_known(offer, path):
    """Nothing else of the disk can be named."""
    connection = http.client.HTTPConnection(loopback.HOST, offer.server_port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", f"127.0.0.1:{offer.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (404, b"")
    connection.close()
    assert not offer.taken


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("{entry}", {}, 302),
        ("{entry}", {"Sec-Fetch-Site": "none"}, 302),
        ("{entry}", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("{entry}", {"Origin": "https://evil.example"}, 403),
        ("{entry}", {"Host": "evil.example:{port}"}, 403),
        ("/", {}, 404),
        ("/x", {}, 404),
        ("{entry}x", {}, 404),
        ("/AAAAAAAAAAAAAAAAAAAAAA/", {}, 404),
    ],
)
def test_the_entry_page_redirects_who_knows_it(offer, path, headers, status):
    """A person who opens the link reaches the viewer; following it does not take the file."""
    offer.target = PAGE + "/#!/?url=x"
    headers = {key: value.format(port=offer.server_port) for key, value in headers.items()}
    connection = http.client.HTTPConnection(loopback.HOST, offer.server_port, timeout=10)
    connection.request("GET", path.format(entry=offer.entry), headers=headers)
    answer = connection.getresponse()
    location = offer.target if status == 302 else None
    assert (answer.status, answer.headers["Location"]) == (status, location)
    connection.close()
    assert not offer.taken


def test_every_offer_has_an_address_of_its_own(trace):
    """A link of an earlier run leads nowhere."""
    with loopback.offered(trace, PAGE, 0) as one, loopback.offered(trace, PAGE, 0) as other:
        assert one.entry != other.entry


def test_other_users_of_this_machine_get_nothing(offer, monkeypatch):
    """Not even with the link: the system says whose the connection is."""
    if not Path("/proc/net/tcp").exists():
        pytest.skip("the system does not say whose a connection is")
    server = offer.server_address
    with socket.create_connection(server, 10) as mine:
        assert loopback.peer_user(mine.getsockname(), server) == os.getuid()
        port = mine.getsockname()[1]
        assert loopback.peer_user(("127.0.0.2", port), server) is None  # the same port of another
    monkeypatch.setattr(loopback, "peer_user", lambda *_: os.getuid() + 1)
    with pytest.raises((http.client.HTTPException, OSError)):
        fetched(offer.address, Origin=PAGE)
    assert not offer.taken


def test_a_connection_by_ipv6_has_its_user_too(offer):
    """Sockets of both versions of IP have their own lists; a user that neither names is refused."""
    if not Path("/proc/net/tcp6").exists():
        pytest.skip("the system does not say whose a connection is")
    server = offer.server_address
    with socket.socket(socket.AF_INET6) as mine:
        mine.connect((f"::ffff:{server[0]}", server[1]))
        client = ("127.0.0.1", mine.getsockname()[1])
        assert loopback.peer_user(client, server) == os.getuid()
        lists = [table for table in loopback._TABLES if not table.name.endswith("6")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loopback, "_TABLES", lists)
            assert loopback.peer_user(client, server) == -1


@pytest.mark.parametrize("sent", [b"GET /half", b"GET / HTTP/1.1\r\nA: b\r\n"])
def test_connections_without_a_request_do_not_keep_others_out(offer, monkeypatch, sent):
    """Beyond a number of them the oldest is closed; a request has all its headers."""
    monkeypatch.setattr(loopback, "CONNECTIONS", 4)
    offer.target = PAGE
    idle = [socket.create_connection(offer.server_address, 10) for _ in range(20)]
    for one in idle:
        one.send(sent)
    status, _, body = fetched(offer.address, Origin=PAGE)
    assert status == 200 and len(body) == offer.size
    assert idle[0].recv(1) == b""
    assert len(offer.served) <= 5
    for one in idle:
        one.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example:9001"}, 403),
        ({"Host": "evil.example"}, 403),
        ({}, 403),
        ({"Origin": PAGE}, 200),
    ],
)
def test_other_sites_get_nothing(offer, headers, status):
    """Neither by their own name nor by one that points here."""
    got, answered, body = fetched(offer.address, **headers)
    assert (got, bool(body)) == (status, status == 200)
    if status == 200:
        wait_for(lambda: offer.taken)
    assert offer.taken == (status == 200)
    assert answered["Access-Control-Allow-Origin"] == PAGE


def test_asking_is_not_taking(offer):
    """A browser's question before it fetches, and a look at the size."""
    asked = {"Origin": PAGE, "Access-Control-Request-Private-Network": "true"}
    status, headers, _ = fetched(offer.address, "OPTIONS", **asked)
    assert (status, headers["Access-Control-Allow-Private-Network"]) == (204, "true")
    status, headers, body = fetched(offer.address, "HEAD", Origin=PAGE)
    assert (status, int(headers["Content-Length"]), body) == (200, offer.size, b"")
    assert fetched(offer.address, "POST")[0] == 501
    assert not offer.taken


def test_only_this_machine_is_listened_to(offer):
    """The socket is that of the loopback interface."""
    assert offer.socket.getsockname()[0] == "127.0.0.1"


def test_half_a_file_is_not_taken(tmp_path):
    """Who goes away in the middle may come back."""
    path = tmp_path / "big.json"
    path.write_bytes(b"x" * (32 << 20))
    with loopback.offered(path, PAGE, 0) as offer:
        thread = threading.Thread(target=offer.until_taken, args=(30 * 10**9,))
        thread.start()
        with socket.create_connection(offer.server_address, 10) as gone:
            gone.sendall(
                f"GET {offer.path} HTTP/1.1\r\nHost: 127.0.0.1:{offer.server_port}\r\n"
                f"Origin: {PAGE}\r\n\r\n".encode()
            )
            assert gone.recv(100)
        assert len(fetched(offer.address, Origin=PAGE)[2]) == 32 << 20
        thread.join(10)
        assert not thread.is_alive()
        wait_for(lambda: not offer.files)


# -- what cannot be done -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["open", "none.pftrace"], 3, "none.pftrace: No such file"),
        (["open", "."], 3, "traceconv merge . --open"),
        (["open", "empty"], 3, "empty: empty"),
        (["open", "x", "--ui", "ui.perfetto.dev"], 2, "is not an address like https://"),
        (["open", "x", "--ui", "file:///etc"], 2, "is not an address like https://"),
        (["open", "x", "--ui", "https://a:b@c"], 2, "password"),
        (["open", "x", "--wait", "5"], 2, "not a time with its unit"),
        (["open", "x", "--wait", "10ms", "--no-browser"], 3, "did not ask for the trace"),
        (["merge", SAMPLE, "--open", "-o", "-"], 2, "-o -"),
        (["merge", SAMPLE, "--open", "-o", "x.txt"], 2, "-o x.txt"),
        (["merge", SAMPLE, "--open", "-n"], 2, "--dry-run"),
        (["merge", SAMPLE, "--open", "--json"], 2, "--json"),
    ],
)
def test_what_cannot_be_opened_is_said(tmp_path, monkeypatch, capsys, words, code, part):
    """What, why, and what to do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(viewer, "PORT", 0)
    (tmp_path / "empty").write_text("")
    (tmp_path / "x").write_text("x")
    assert run(words) == code
    assert part in " ".join(capsys.readouterr().err.split())


def test_an_interruption_leaves_the_trace(tmp_path, monkeypatch, capsys):
    """Ctrl-C while waiting says so; what merge wrote is there."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(viewer, "PORT", 0)
    monkeypatch.setattr(loopback.Offer, "until_taken", interrupted)
    out = tmp_path / "x.pftrace"
    assert run(["merge", SAMPLE, "-o", str(out), "--open", "--no-browser"]) == 130
    err = capsys.readouterr().err
    assert ("which is unchanged" in err, "nothing was written" in err) == (True, False)
    assert out.stat().st_size


def test_a_port_in_use_is_said(monkeypatch, trace, capsys):
    """With what may be using it."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setattr(viewer, "PORT", other.getsockname()[1])
        assert run(["open", str(trace), "--no-browser"]) == 3
    assert "trace_processor" in capsys.readouterr().err


def test_a_browser_is_opened_where_there_is_a_window(monkeypatch, trace):
    """Else the link is printed; a browser in the terminal would hide it."""
    monkeypatch.setattr("webbrowser.open_new_tab", lambda target: opened.append(target) or True)
    opened = []
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not viewer.browse("x")
    monkeypatch.setenv("DISPLAY", ":0")
    assert viewer.browse("x")
    assert opened == ["x"]


# -- with a report -------------------------------------------------------------------------


def test_a_report_is_served_beside_its_trace(trace):
    """At the root, to people; what follows a question mark is for its script. Nothing else."""
    with loopback.offered(trace, PAGE, 0, b"<p>report") as offer:
        thread = threading.Thread(target=offer.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        status, headers, body = fetched(offer.entry_address + "?trace=x")
        assert (status, body) == (200, b"<p>report")
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert not offer.taken
        assert fetched(offer.address, Origin=PAGE)[2] == trace.read_bytes()
        assert fetched(offer.entry_address + "x")[0] == 404
        assert fetched(offer.entry_address, Origin="https://evil.example")[0] == 403
        offer.shutdown()
        thread.join(10)


@pytest.mark.parametrize(
    ("content", "part"), [(None, "No such file"), ("<p>", "not a report of traceconv")]
)
def test_only_reports_of_ours_are_served(trace, tmp_path, capsys, content, part):
    """The places of another page lead nowhere."""
    page = tmp_path / "page.html"
    if content is not None:
        page.write_text(content)
    assert run(["open", str(trace), "--report", str(page)]) == 3
    assert part in capsys.readouterr().err
