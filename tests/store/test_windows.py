"""Windows of time from a store: equal to those of captures, and read block by block."""

import json

import pytest

import traceconv
from traceconv import EmptyResultError, MalformedInputError

EVENTS = 40_000


@pytest.fixture(scope="module")
def long_job(tmp_path_factory):
    """Two ranks whose events, arguments and flows fill several blocks; and their store."""
    folder = tmp_path_factory.mktemp("long") / "job"
    folder.mkdir()
    for rank in range(2):
        events = []
        for number in range(EVENTS):
            ts = 10 * number + rank
            one = {"ph": "X", "name": f"op {number % 7}", "pid": 1, "tid": 1, "ts": ts}
            events.append({**one, "dur": 9.5, "args": {"number": number, "text": "x" * 40}})
        for number in range(0, EVENTS, 50):
            flow = {"cat": "c", "name": "f", "id": number, "pid": 1}
            ends = (("s", number, {}), ("f", min(number + 4, EVENTS - 1), {"bp": "e"}))
            for phase, row, more in ends:
                at = {"tid": 1, "ts": 10 * row + rank}
                events.append({"ph": phase, **flow, **at, **more})
        (folder / f"rank{rank}.json").write_text(json.dumps({"traceEvents": events}))
    store = folder.parent / "run.tcz"
    traceconv.pack(folder, out=store, views=True, jobs=1, reader="chrome_json", rank_from="name")
    return folder, store


def merged(source, out, **options):
    """The text dump of a source, and the report."""
    try:
        report = traceconv.merge(source, out=out, force=True, jobs=1, **options)
    except EmptyResultError as e:
        return str(e)
    return out.read_text(), report.as_dict()


READING = {"reader": "chrome_json", "rank_from": "name"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("window", ["0ns:1ms", "100ms:101ms", "390ms:", ":20us", "3s:4s"])
def test_a_window_is_what_it_is_of_the_captures(long_job, window, tmp_path):
    """Events with their arguments, flows, and the count of what was left out."""
    folder, store = long_job
    out = tmp_path / "out.txt"
    options = {"mode": "detail", "time": window}
    assert merged(store, out, **options) == merged(folder, out, **READING, **options)


@pytest.mark.parametrize(
    "options", [{"layers": "host"}, {"steps": 1}, {"exclude": "op 3"}, {"scope": True}]
)
def test_other_views_are_made_of_what_was_read(long_job, options, tmp_path):
    """A store has the plain views only."""
    folder, store = long_job
    out = tmp_path / "out.txt"
    options = {**options, "mode": "detail", "time": "100ms:101ms"}
    try:
        expected = merged(folder, out, **READING, **options)
    except traceconv.SelectionError as e:
        with pytest.raises(traceconv.SelectionError) as found:
            merged(store, out, **options)
        assert str(found.value) == str(e)
    else:
        assert merged(store, out, **options) == expected


@pytest.mark.sample(3)
def test_a_window_of_every_case_is_what_it_is_of_the_captures(sampled, tmp_path):
    """Whatever was recorded; half of the time in the middle, and without a window."""
    traceconv.pack("input", out=tmp_path / "run.tcz", views=True, jobs=1, **sampled.reading)
    spans = [trace.span() for trace in traceconv.open(tmp_path / "run.tcz").traces()]
    length = max((span[1] - span[0] for span in spans if span), default=0)
    for mode in ("summary", "detail"):
        for window in ({}, {"time": (length // 4, 3 * length // 4 + 1)}):
            out = tmp_path / "out.txt"
            found = merged(tmp_path / "run.tcz", out, mode=mode, **window)
            assert found == merged("input", out, mode=mode, **window, **sampled.reading)


def test_blocks_outside_of_a_window_are_not_read(long_job, tmp_path):
    """Damage there does not matter; where all is read, it is an error."""
    _, store = long_job
    options = {"mode": "detail", "ranks": 1}
    out = tmp_path / "out.txt"
    windows = {"time": "0ns:1ms"}, {}
    expected = [merged(store, out, **options, **window) for window in windows]
    content = bytearray(store.read_bytes())
    hurt = tmp_path / "hurt.tcz"
    outcomes = set()
    for at in range(len(content) * 3 // 4, len(content), len(content) // 60):
        changed = bytearray(content)
        changed[at] ^= 1
        hurt.write_bytes(changed)
        found = []
        for window, right in zip(windows, expected, strict=True):
            try:
                found.append(merged(hurt, out, **options, **window) == right)
            except MalformedInputError:
                found.append("error")
        outcomes.add(tuple(found))
    assert (True, "error") in outcomes
    assert outcomes <= {(True, "error"), ("error", "error"), (True, True)}
