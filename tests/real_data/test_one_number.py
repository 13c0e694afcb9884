"""One figure has one value: in the headlines of diagnose and merge, the verdict, the cards, the
JSON documents, the page and the tables of stats. A thorough run asks this of every capture."""

import re

import pytest
from effort import THOROUGH
from html_page import Reader
from paths import DATA, ROOT
from real_captures import captures

import traceconv
from traceconv.cli.stats import step_digest
from traceconv.core.clock import time_text
from traceconv.core.errors import TraceconvError

CAPTURES = (
    ROOT / "golden/trace_view/demo/input",
    ROOT / "examples/job",
    DATA / "ascend/msinsight/test/data/pytorch/text/level1",
    DATA / "ascend/mindinsight/profiler",
    DATA / "gpu/inference",
    DATA / "gpu/xplane",
)
LENGTH = r"[\d.]+ (?:ns|µs|ms|s)"


@pytest.fixture(
    scope="module",
    params=(*CAPTURES, *(captures() if THOROUGH else ())),
    ids=lambda path: path.relative_to(ROOT.parent).as_posix(),
)
def run(request, tmp_path_factory):
    """What is said of a capture, in all places; skipped where it is none."""
    path = str(request.param)
    out = str(tmp_path_factory.mktemp("merged") / "t.pftrace")
    try:
        found = traceconv.diagnose(path, analyse=True, jobs=1)
        merged = traceconv.merge(path, out=out, jobs=1)
        tables = traceconv.stats(path, by="step,overlap", jobs=1)
    except TraceconvError as e:
        if request.param in CAPTURES:
            raise
        pytest.skip(f"not a capture: {e}")
    return found, found.document["overview"], merged, tables


def said(headline):
    """Of a headline, how long a step takes and what it loses: words, length, percent."""
    step, _, lost = headline.partition("Lost: ")
    length = re.search(rf"(?:step )?({LENGTH})(?: \+ (?:known )?gap| per step| recorded)", step)[1]
    every = re.findall(rf"(?:^|, )(.+?) ({LENGTH}) \((\d+) %\)", lost)
    return length, {words: (ns, f"{percent} %") for words, ns, percent in every}


@pytest.mark.sample(2)
def test_losses_are_those_of_the_headline(run):
    """In JSON, on cards, and in what merge prints without comparing ranks."""
    found, overview, merged, _ = run
    line = re.split(r"(?:Mean of r|R)ank", found.headline)[-1]
    assert overview["headline"] == found.headline
    if "losses are unknown" in line or "Lost: " not in line:
        return
    step, lost = said(f"Rank{line}")
    tiles = {tile["name"]: (tile["value"], tile["note"]) for tile in overview["tiles"]}
    assert step == (tiles.get("Step") or tiles["Recorded"])[0]
    for words, (ns, percent) in lost.items():
        value, note = tiles[f"{words[:1].upper()}{words[1:]}"]
        assert (value, note.partition(" of ")[0]) == (percent, ns)
    parts = [int(percent.removesuffix(" %")) for _, percent in lost.values()]
    computing = int(tiles["Computing"][0].removesuffix(" %"))
    assert computing + sum(parts) <= 100 + (len(parts) + 1) / 2, "every instant counts once"
    in_json = [time_text(one["ms_per_step"] * 1e6) for one in overview["losses"]]
    assert in_json[: len(lost)] == [ns for ns, _ in lost.values()]
    (account,) = (text for text in merged.lines() if " Lost: " in text or "no loss" in text)
    if "step_trace_time of" in line:  # of ranks without a timeline, which are not merged
        return
    other_step, others = said(account)
    assert other_step == step
    assert all(others[words] == lost[words] for words in lost.keys() & others.keys())


def test_what_the_culprit_costs_is_one_figure(run):
    """Headline, verdict, card, finding, remedy, JSON."""
    _, overview, _, _ = run
    culprit = overview["straggler"]["culprit"]
    if culprit is None:
        assert not [one for one in overview["findings"] if one["rule"] == "straggler"]
        return
    costs = time_text(culprit["gain_ns"])
    (tile,) = (tile["note"] for tile in overview["tiles"] if tile["name"] == "Straggler")
    finding = next(one for one in overview["findings"] if one["rule"] == "straggler")
    own = f"rank:{culprit['rank']}=peers"
    remedy = next((one for one in overview["what_if"] if one["change"] == own), None)
    longer = time_text(culprit["excess_ns"])
    assert tile == f"costs {costs} per step"
    for text in (overview["headline"], overview["verdict"]["text"], finding["evidence"][0]):
        assert f"costs {costs} per step" in text
    # the three best remedies need not include it
    if remedy is not None:
        (share,) = re.findall(r"per step \(([\d.]+ %)", overview["verdict"]["text"])
        assert remedy["text"].startswith(f"{costs} less per step ({share})")
    if f"begins communication {longer} later per step" in finding["evidence"]:
        return  # its own time is not longer
    assert f"longer by {longer} per step" in finding["evidence"]
    assert time_text(overview["late_ns"][str(culprit["rank"])]) == longer


def test_utilisation_is_that_of_the_table(run):
    """The card, the rule and the table of overlap."""
    _, overview, _, stats = run
    value = next((t["value"] for t in overview["tiles"] if t["name"] == "Device utilisation"), "")
    if not value:
        return
    rows = overview["overlap"]["rows"]
    table = stats["overlap"].columns
    for row in rows:
        mine = (table["Rank"] == row["rank"]) & (table["Known(ns)"] > 0)
        measured = mine & (table["Source"] == "timeline")  # else only a table states it
        mine = measured if measured.any() else mine
        marked = mine & (table["Step"] >= 0)
        graphs = {g: table["Known(ns)"][marked & (table["Graph"] == g)].sum()
                  for g in set(table["Graph"][marked].tolist())}  # fmt: skip
        marked &= table["Graph"] == max(graphs, key=graphs.get, default=0)
        idle, known = (
            int(table[key][marked if marked.any() else mine].sum())
            for key in ("Idle(ns)", "Known(ns)")
        )
        # whole ns, over devices in one of them
        assert abs(idle / known - row["idle_ns"] / row["known_ns"]) < 1e-5 + 2 / row["known_ns"]
    idle, known = (sum(row[key] for row in rows) for key in ("idle_ns", "known_ns"))
    assert value == f"{100 - 100 * idle / known:.1f} %"


def test_the_step_of_stats_is_that_of_the_headline(run):
    """The mean over ranks of the mean steps, of the graph that takes most time."""
    found, _, _, stats = run
    digest = step_digest(stats)
    if digest is None or "step_trace_time" in found.headline or "Lost: " not in found.headline:
        return
    columns = {name: values.tolist() for name, values in digest.data.columns.items()}
    most = {}
    keys = ("Rank", "Mean(ns)", "Steps", "Compute(%)")
    for rank, mean, steps, computing in zip(*(columns[key] for key in keys), strict=True):
        if computing:  # else losses are unknown
            most[rank] = max(most.get(rank, (0, 0)), (mean * steps, mean))
    mean = sum(mean for _, mean in most.values()) / len(most)
    line = re.split(r"(?:Mean of r|R)ank", found.headline)[-1]
    assert said(f"Rank{line}")[0] == time_text(mean)


def test_the_page_has_the_figures_of_the_document(run):
    """The verdict and every card."""
    found, overview, _, _ = run
    words = " ".join(Reader(found.html_text()).text).replace("\u00a0", " ")
    assert overview["verdict"]["text"] in words
    for tile in overview["tiles"]:
        assert f"{tile['name']} {tile['value']} {tile['note']}" in words


def test_a_step_with_its_gap_has_one_length():
    """In the headline, on the critical path, in a replay and in its gain."""
    found = traceconv.diagnose(CAPTURES[0], analyse=True, jobs=1)
    assert "step 4.06 ms + gaps 1.59 ms = 5.65 ms" in found.headline
    path, changed = traceconv.critical_path(CAPTURES[0]), traceconv.what_if(CAPTURES[0])
    assert "3 steps with the gaps before them, 5.65 ms each" in path.lines()[0]
    assert changed.result.as_dict()["step_ns"] == pytest.approx(5.65e6, abs=5e3)
    (gap,) = (one for one in changed.suggested if one.change.change == "pause:0")
    every = found.document["overview"]["losses"]
    losses = {one["class"]: one["ms_per_step"] for one in every}
    assert losses["pause"] == pytest.approx(gap.gain_ns / 1e6, rel=0.01)
