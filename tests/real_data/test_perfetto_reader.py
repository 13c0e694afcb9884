"""The Perfetto reader against Perfetto's own importer, over the traces it was run on."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from effort import effort
from paths import DATA

import traceconv
from traceconv.core.errors import TraceconvError
from traceconv.core.model import Kind, OpClass, Trace
from traceconv.find import discovery
from traceconv.io.sources import sources
from traceconv.run.stages import events

SMALL, HUB = DATA / "perfetto", DATA / "hub" / "perfetto"
PRODUCERS = DATA / "hub" / "perfetto_producers"

LISTED = 40
"""The expectations of small traces list this many slices, arrows and arguments at most."""

OTHERS = (".json", ".json.gz", ".zip")
"""Traces of other formats, and archives of them."""

ELSEWHERE = {
    "ftrace_print_same_track": {"atrace"},
}
"""Slices that the importer makes of other packets than TrackEvents."""

CASES = sorted(
    path
    for folder in (SMALL, HUB, PRODUCERS)
    for path in folder.glob("*")
    if path.name != "README.md" and not path.name.endswith((".expect.json", ".py", *OTHERS))
)
ZSTD = {"2_zst_frames", "zst_whole", "zstd_compressed_packets_133"}
REFUSED = {"compressed_packets_50_raw_deflate", "json_bom"}


def case_name(path: Path) -> str:
    return path.name.split(".")[0]


def expected(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        (path.parent / f"{case_name(path)}.expect.json").read_text()
    )
    return document


def traces(path: Path) -> list[Trace]:
    if case_name(path) in ZSTD and importlib.util.find_spec("zstandard") is None:
        pytest.skip("zstd needs the package zstandard, which is not installed")
    found = discovery.discover(sources([str(path)])).captures
    assert {one.reader for one in found} == {"perfetto"}
    return [events(capture, lambda n: None) for capture in found]


GOOD = [path for path in CASES if case_name(path) not in REFUSED]


def ids(paths: list[Path]) -> list[str]:
    return [case_name(path) for path in paths]


def instants(trace: Trace) -> int:
    return int((trace.events.kind == Kind.INSTANT).sum())


def rows(trace: Trace) -> list[tuple[str, int, int]]:
    """Name, time and length of every row."""
    names = [trace.strings[i] for i in trace.events.name.tolist()]
    table = trace.events
    return list(zip(names, table.start_ns.tolist(), table.dur_ns.tolist(), strict=True))


def wanted_slices(path: Path) -> list[dict[str, Any]]:
    skip = ELSEWHERE.get(case_name(path), set())
    found = expected(path).get("slices", [])
    return [one for one in found if one.get("name") not in skip]


GROUPED = [path for path in GOOD if case_name(path).startswith("xpu_timer")]
"""Processes are groups of ranks, threads name the rank, and an event of a rank is in every group
that the rank is in: the importer's slices are more than the events, by these copies.
"""

ALONE = [path for path in GOOD if path not in GROUPED]

Event = tuple[str, str, str, int, int, tuple[tuple[str, str], ...]]
"""Rank and lane, as the thread names them, name, time, length and arguments."""


def events_of(path: Path) -> tuple[dict[int, Event], dict[int, Counter[Event]]]:
    """The importer's slices by id as events of ranks, and how often each is in which group."""
    document = expected(path)
    tracks = {one["id"]: one for one in document["tracks"]}
    slices: dict[int, Event] = {}
    groups: dict[int, Counter[Event]] = {}
    for one in document["slices"]:
        thread = tracks[one["track"]]["thread"]
        _, rank, lane = thread["name"].split()
        args = tuple(sorted((k.removeprefix("debug."), text_of(v)) for k, _, v in one["args"]))
        event = (rank, lane, one["name"], one["ts"], one["dur"], args)
        slices[one["id"]] = event
        groups.setdefault(thread["process"]["pid"], Counter())[event] += 1
    return slices, groups


def event(trace: Trace, row: int) -> Event:
    """The same of a row that was read."""
    table = trace.events
    args = leaves(trace.args[int(table.args[row])], "")
    return (
        str(trace.rank),
        trace.tracks[int(table.track[row])].name,
        trace.strings[int(table.name[row])],
        int(table.start_ns[row]),
        int(table.dur_ns[row]),
        tuple(sorted((key, text_of(value)) for key, value in args)),
    )


@pytest.mark.parametrize("path", GROUPED, ids=ids(GROUPED))
def test_events_of_groups_are_the_importers_once(path: Path) -> None:
    """An event is there as often as in the group that has it most, with its lane and all its
    arguments; what is less than the importer's slices is what the account says.
    """
    slices, groups = events_of(path)
    want: Counter[Event] = Counter()
    for group in groups.values():
        want |= group
    found = traces(path)
    seen = Counter(event(trace, row) for trace in found for row in range(len(trace.events)))
    assert seen == want
    for trace in found:
        own = [one for one in slices.values() if one[0] == str(trace.rank)]
        assert len(own) == len(trace.events) + trace.issues.count("repeated-content")
        assert trace.ledger["read", "slice"] == len(own)


@pytest.mark.parametrize("path", GROUPED, ids=ids(GROUPED))
def test_arrows_of_groups_are_the_importers_within_ranks(path: Path) -> None:
    """Each of the importer's arrows is drawn, leads to a copy of its own start, or leads from
    rank to rank and is counted where it ends.
    """
    slices, _ = events_of(path)
    want: set[tuple[Event, Event]] = set()
    copies: Counter[str] = Counter()
    across: Counter[str] = Counter()
    for start, end in ((slices[a], slices[b]) for a, b in expected(path)["flows"]):
        if start[0] != end[0]:
            across[end[0]] += 1
        elif start == end or (start, end) in want:
            copies[end[0]] += 1
        else:
            want.add((start, end))
    seen = []
    for trace in traces(path):
        ends = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
        seen += [(event(trace, a), event(trace, b)) for a, b in ends]
        assert trace.issues.count("flow-across-ranks") == across[str(trace.rank)]
        drawn = trace.ledger["read", "flow"] - across[str(trace.rank)] - copies[str(trace.rank)]
        assert drawn == len(trace.flows)
    assert Counter(seen) == Counter(want)
    assert sum(across.values()) + sum(copies.values()) + len(seen) == len(expected(path)["flows"])


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", ALONE, ids=ids(ALONE))
def test_slices_equal_the_importers(path: Path) -> None:
    """Name, time and duration of every slice; one that never ends is at least there."""
    found = [row for trace in traces(path) for row in rows(trace)]
    wanted = wanted_slices(path)
    open_ = {(s.get("name") or "", s["ts"]) for s in wanted if s["dur"] < 0}
    seen = Counter((n, ts, -1 if (n, ts) in open_ else dur) for n, ts, dur in found)
    want = Counter((s.get("name") or "", s["ts"], s["dur"]) for s in wanted)
    if case_name(path) == "state":
        seen = Counter()  # the importer's table of slices has no states
    listed = len(wanted) == LISTED and path.parent == SMALL
    assert want <= seen if listed else want == seen
    total = expected(path).get("n_slices")
    if total is not None and case_name(path) != "state":
        assert sum(len(trace.events) for trace in traces(path)) == total


def unit(text: str) -> str:
    return {"B": "bytes"}.get(text, text)


@pytest.mark.parametrize("path", GOOD, ids=ids(GOOD))
def test_counters_equal_the_importers(path: Path) -> None:
    """Track, unit, time and value of every sample."""
    found = Counter(
        (trace.tracks[t].name, unit(trace.tracks[t].unit or ""), ts, value)
        for trace in traces(path)
        for t, ts, value in zip(
            trace.counters.track.tolist(),
            trace.counters.start_ns.tolist(),
            trace.counters.value.tolist(),
            strict=True,
        )
    )
    document = expected(path)
    tracks = {t["id"]: t for t in document.get("tracks", [])}
    want: Counter[tuple[str, str, int, float]] = Counter()
    for one in document.get("counters", []):
        if path.parent == SMALL:
            name, measure = one["track"], one.get("unit", "")
        else:
            track = tracks[one["track"]]
            name, measure = track.get("name", ""), track.get("unit", "")
        if measure == "count":
            measure = ""
        want[name, measure, one["ts"], one["value"]] += 1
    seen = Counter((n, "" if u in ("count", "W") else u, ts, v) for n, u, ts, v in found.elements())
    if case_name(path) == "te_counters":  # two threads' own clocks bear no unit there
        seen = Counter(
            (n, "" if n.startswith("thread_") else u, *rest) for n, u, *rest in seen.elements()
        )
        want = Counter(
            (n, "" if n.startswith("thread_") else u, *rest) for n, u, *rest in want.elements()
        )
    assert +want == seen


@pytest.mark.parametrize("path", ALONE, ids=ids(ALONE))
def test_flows_equal_the_importers(path: Path) -> None:
    """Every arrow leads from and to the slices that the importer connects."""
    found: Counter[tuple[Any, Any]] = Counter()
    for trace in traces(path):
        table = rows(trace)
        ends = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
        found.update((table[a][:2], table[b][:2]) for a, b in ends)
    document = expected(path)
    slices = {
        s["id"]: (s.get("name") or "", s["ts"]) for s in document.get("slices", []) if "id" in s
    }
    wanted = document.get("flows", [])
    if path.parent == SMALL:
        names = Counter((a[0], b[0]) for a, b in found.elements())
        want = Counter((f["src"], f["dst"]) for f in wanted)
        assert want <= names if len(wanted) == LISTED else want == names
        return
    slices = {s["id"]: (s.get("name") or "", s["ts"]) for s in document.get("slices", [])}
    want = Counter((slices[a], slices[b]) for a, b in wanted)
    assert want == found


IMPORTERS = (
    *("legacy_event.", "upid", "render_", "hw_queue_id", "command_buffer", "context_id"),
    *("submission_id",),
)
"""Arguments that the importer makes up, or gives every GPU slice."""


CATEGORY = "trace_event.cat"
"""Our argument for a category that decides no class."""


def leaves(value: Any, key: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in leaves(v, f"{key}.{k}")]
    if isinstance(value, list):
        return [leaf for i, v in enumerate(value) for leaf in leaves(v, f"{key}[{i}]")]
    return [(key.lstrip("."), value)]


def text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("path", ALONE, ids=ids(ALONE))
def test_arguments_equal_the_importers(path: Path) -> None:
    """Key and value of every argument."""
    found: Counter[tuple[Any, ...]] = Counter()
    for trace in traces(path):
        for (name, ts, _), args in zip(rows(trace), trace.events.args.tolist(), strict=True):
            for key, value in leaves(trace.args[args], ""):
                found[name, ts, flat(key), text_of(value)] += 1
    want: Counter[tuple[Any, ...]] = Counter()
    document = expected(path)
    if path.parent == SMALL:
        for a in document.get("args", []):
            key = flat(a["flat_key"].removeprefix("debug."))
            if not key.startswith(IMPORTERS) and a.get("value") is not None:
                want[a["slice"], key, a["value"]] += 1
        ours = (*IMPORTERS, CATEGORY)
        seen = Counter((n, k, v) for n, _, k, v in found.elements() if not k.startswith(ours))
        assert want <= seen if len(document.get("args", [])) == LISTED else want == seen
        return
    for one in wanted_slices(path):
        for key, _, value in one.get("args", []):
            key = flat(key.removeprefix("debug."))
            if not key.startswith((*IMPORTERS, "legacy_trace")) and value is not None:
                want[one.get("name") or "", one["ts"], key, text_of(value)] += 1
        category = (one.get("name") or "", one["ts"], CATEGORY, one.get("category"))
        want[category] += category in found
    seen = Counter(
        {row: n for row, n in found.items() if not row[2].startswith((*IMPORTERS, "legacy_trace"))}
    )
    assert +want == seen


TRUTHS = [path for path in GOOD if path.parent == PRODUCERS and expected(path).get("truth")]


@pytest.mark.parametrize("path", TRUTHS, ids=ids(TRUTHS))
def test_producers_tell_their_story(path: Path) -> None:
    """What each rank computed, sent and copied, and its steps, is what the files were made of."""
    truth = expected(path)["truth"]
    found = traceconv.open(str(path)).traces("detail")
    ranks = {one.rank: one for one in found}
    for name, known in truth.items():
        trace = (
            ranks[int(name.removeprefix("rank "))] if "rank" in name else next(iter(ranks.values()))
        )
        assert trace.overlap is not None
        sums, table = trace.overlap.sums_ns, trace.events
        kernels = (table.op == OpClass.COMPUTE) | (table.op == OpClass.COMM)
        told = {
            "computing": sums.computing,
            "communication": sums.communication,
            "overlapped": sums.communication - sums.not_overlapped,
            "kernels": int(kernels.sum()),
        }
        if not case_name(path).startswith("xpu_timer"):  # which has neither copies nor steps
            told |= {"copies": sums.copying, "steps": len(trace.steps)}
        assert told == {key: known[key] for key in told}


def flat(key: str) -> str:
    return re.sub(r"\[\d+\]", "", key)


@pytest.mark.parametrize("path", GOOD, ids=ids(GOOD))
def test_accounts_are_closed(path: Path) -> None:
    """What is seen and not lost is there."""
    for trace in traces(path):
        booked = dict.fromkeys(trace.counts(), 0)
        for (_, kind), count in trace.ledger.items():
            booked[kind] += count
        assert booked == trace.counts()


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", CASES, ids=ids(CASES))
def test_cut_traces_end_in_a_trace_or_a_named_error(path: Path, tmp_path: Path) -> None:
    """Every trace cut at several places is read as far as it goes, or refused by name."""
    whole = path.read_bytes()
    for i in range(1, 16, effort(4, 1)):
        cut = tmp_path / path.name
        cut.write_bytes(whole[: len(whole) * i // 16])
        try:
            found = discovery.discover(sources([str(cut)])).captures
            for capture in found:
                events(capture, lambda n: None)
        except TraceconvError:
            continue
