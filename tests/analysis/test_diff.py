"""Comparisons of runs: what was planted is found and put down to the right item, what is equal is
not called different, and every difference adds up."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from effort import effort
from paths import ROOT
from training_runs import ELEMENTWISE, Plan, model, reshaped, slower, unfused, write

import traceconv
from traceconv.alignment.collective_records import collective_records
from traceconv.analysis.diff.comparison import compare, whole_means
from traceconv.analysis.diff.items import step_items
from traceconv.analysis.diff.matching import match, plain
from traceconv.analysis.diff.runs import Run
from traceconv.analysis.diff.significance import Series, half_widths, resolution, verdicts
from traceconv.cli import outcome
from traceconv.core.errors import ComparisonError, OptionError

SHAPE = "[[4096,4096],[4096,1024]]"
PLAN = Plan(ranks=2)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run of two ranks and ten steps."""
    return write(tmp_path_factory.mktemp("base"), replace(PLAN, seed=1))


@pytest.fixture
def compared(base, tmp_path):
    """The base against a run with something planted."""

    def compare(**changes):
        after = write(tmp_path / "after", replace(PLAN, **{"seed": 2, **changes}))
        return adding_up(traceconv.diff(base, after))

    return compare


def adding_up(found):
    """The comparison, whose changes have to add up on every level and rank, to the ns."""
    step = found.classes["Change(ns)"][0]
    assert found.items["Change(ns)"].sum() == found.operators["Change(ns)"].sum() == step
    for side in ("Before(ns)", "After(ns)"):
        assert found.items[side].sum() == found.classes[side][0]
    names = found.classes["Name"].tolist()
    parts = ("computing", "exposed_comm", "copies", "waiting", "unrecorded", "critical rank")
    assert sum(found.classes["Change(ns)"][names.index(part)] for part in parts) == step
    every = found.rank_items
    for rank, change in zip(found.ranks["Rank After"], found.ranks["Change(ns)"], strict=True):
        assert every["Change(ns)"][every["Rank After"] == rank].sum() == change
    return found


def proven(found):
    """What got slower or faster for sure, by name of the operator: verdicts."""
    table = found.operators
    rows = zip(table["Sort"], table["Name"], table["Type"], table["Verdict"], strict=True)
    return {(s, n, t): v for s, n, t, v in rows if v in ("slower", "faster")}


def changed(found):
    """What changed of items besides their time."""
    table = found.items
    rows = zip(table["Name"], table["Shape"], table["Module"], table["Changed"], strict=True)
    return {(plain(n), s, m): c for n, s, m, c in rows if c}


# -- what is planted ---------------------------------------------------------------------------


def test_one_operator_two_percent_slower(compared):
    """It is named, and nothing else; the step is too noisy for so little."""
    found = compared(works=slower(model(), "aten::mm", 1.02))
    assert proven(found) == {("compute", "aten::mm", ""): "slower"}
    row = found.operators["Name"].tolist().index("aten::mm")
    assert found.operators["Change(%)"][row] == pytest.approx(2, abs=0.3)
    assert found.verdict in ("no verdict", "no change", "slower")


def test_forty_milliseconds_of_waiting_for_input(compared):
    """They are waiting for input, before the first work of the step."""
    found = compared(stall_us=40_000)
    first = ("wait", "Memcpy HtoD (Pinned -> Device)", "input")
    assert proven(found) == {first: "slower"}
    assert found.verdict == "slower"
    row = found.classes["Name"].tolist().index("input_wait")
    assert found.classes["Change(ns)"][row] == pytest.approx(40e6, rel=0.01)


def test_overlap_that_is_lost(compared):
    """The collectives take no longer, but nothing hides them any more."""
    found = compared(overlap=False)
    [(sort, name, _)] = proven(found)
    assert (sort, name) == ("communication", "allreduce")
    row = found.items["Name"].tolist().index("allreduce")
    assert found.items["Changed"][row] == "overlap"
    assert "hidden 75 % → 0 %" in found.text()


def test_a_shape_that_changed(compared):
    """The item is the same one with another shape, in every layer."""
    after = "[[4096,4096],[4096,1536]]"
    found = compared(works=reshaped(model(), SHAPE, after, 1.4))
    assert proven(found) == {("compute", "aten::mm", ""): "slower"}
    layers = {f"Model_0/Layer_{i}/Mlp_{i}" for i in range(4)}
    marks = changed(found)
    assert {m for (_, s, m), c in marks.items() if c == "shape duration"} == layers
    assert {s for (_, s, _), c in marks.items() if "shape" in c} == {after}


def test_a_fusion_that_is_gone(compared):
    """One kernel is gone, two are new, and they stand in each other's place."""
    found = compared(works=unfused(model()))
    assert proven(found) == {
        ("compute", "fused_gelu_add", ""): "faster",
        ("compute", "aten::gelu", ""): "slower",
        ("compute", "aten::add", ""): "slower",
    }
    marks = Counter(found.items["Changed"][found.items["Sort"] == "compute"].tolist())
    assert (marks["removed"], marks["added"]) == (4, 8)
    gone = next(row for row in found.document["items"] if row["changed"] == ["removed"])
    instead = [found.document["items"][row]["type"] for row in gone["instead"]]
    assert instead == ["aten::gelu", "aten::add"]


def test_a_kernel_that_moved_and_one_that_is_called_more_often(compared):
    """Told apart: the first layer's attention in another module, another kernel twice as often."""
    works = list(model())
    works[1] = replace(works[1], module="Model_0/Encoder_0")
    again = replace(works[2], us=200.0)
    works[2:3] = [again, again]
    found = compared(works=tuple(works))
    marks = changed(found)
    assert marks["flash_fwd_kernel", works[1].shape, "Model_0/Encoder_0"] == "moved"
    count = marks["at::native::vectorized_elementwise_kernel", again.shape, again.module]
    assert count.split()[0] == "count"


def test_equal_runs_differ_in_nothing_that_is_proven(compared):
    """Another seed is another run of the same."""
    assert proven(compared()) == {}


def test_halves_of_one_run_are_not_called_different(tmp_path):
    """At most two of a hundred pairs, whatever the noise: normal, skewed, with heavy tails."""
    pairs, wrong = effort(20, 200), []
    noises = (
        {}, {"noise": 0.02, "pace": 0.02}, {"shape": "exponential", "noise": 0.02},
        {"shape": "student", "noise": 0.02}, {"steps": 8}, {"steps": 40, "noise": 0.01},
    )  # fmt: skip
    for i in range(pairs):
        plan = replace(Plan(steps=20, seed=5000 + i), **noises[i % len(noises)])
        run = write(tmp_path / str(i), plan)
        half = plan.steps // 2
        found = traceconv.diff(run, steps=f"1-{half}:{half + 1}-{2 * half}", jobs=1)
        tables = (found.classes, found.operators, found.items, found.ranks)
        if any({"slower", "faster"} & set(table["Verdict"].tolist()) for table in tables):
            wrong.append(i)
    assert len(wrong) <= 0.02 * pairs, wrong


def test_steps_that_differ_by_more_than_a_step_tell_nothing(tmp_path):
    """Two steps a side that have nothing in common: no interval that would begin below nothing."""
    run = write(tmp_path / "run", replace(PLAN, seed=3, steps=4, pace=0.9))
    found = traceconv.diff(run, steps="1-2:3-4")
    headline = found.document["headline"]
    assert headline.startswith("no verdict: ")
    assert "(any length is within the interval)" in headline


# -- ranks, steps, reports ---------------------------------------------------------------------


def test_rank_against_rank(base):
    """Two ranks of one run; pairs as they are given."""
    found = adding_up(traceconv.diff(base, ranks="0:1"))
    assert (found.ranks["Rank Before"].tolist(), found.ranks["Rank After"].tolist()) == ([0], [1])
    with pytest.raises(OptionError, match="2 ranks before and 1 after do not pair"):
        traceconv.diff(base, ranks="0-1:1")


def test_ranks_that_only_one_run_has_are_named(tmp_path):
    """Of a job of which another rank was captured, too: those that both have are compared."""
    one = Run.of("one", {rank: items_of(write(tmp_path / f"{rank}", Plan(seed=rank)))
                         for rank in (0, 1)}, 8)  # fmt: skip
    found = traceconv.DiffReport(compare(one, one.only(ranks=[1])))
    assert found.ranks["Rank Before"].tolist() == [1]
    assert "Not compared: rank 0 of one." in found.text()


def test_one_run_needs_two_sides(base):
    """What to do about it is in the message."""
    with pytest.raises(OptionError, match="one run needs two sides"):
        traceconv.diff(base, steps="1-5")


def test_a_report_stands_for_its_captures(base, tmp_path):
    """The same document as of the captures, and the same figures of a merged trace."""
    report = traceconv.merge(base, out=str(tmp_path / "a.json"), mode="detail", analyse=True)
    outcome.write(report.as_dict(), tmp_path / "report.json")
    own, kept, merged = (
        traceconv.diff(base, other).as_dict()
        for other in (base, tmp_path / "report.json", tmp_path / "a.json")
    )
    assert kept["verdict"] == own["verdict"] == merged["verdict"] == "no change"
    for one in (kept, merged):
        assert one["after"].pop("label") != own["after"]["label"]
        assert one["items"] == own["items"]
        assert one["ranks"] == own["ranks"]
    assert "Both are the same recording." in kept["remarks"]


def test_a_rank_that_was_not_critical_before(tmp_path):
    """The job is its longest rank: that another one is critical is an item, so that sums hold."""
    runs = []
    for seed, slow in ((1, 0), (2, 1)):
        ranks = {}
        for rank in (0, 1):
            works = slower(model(), "aten::mm", 1.2 if rank == slow else 1.0)
            plan = Plan(works=works, seed=10 * seed + rank, fetch_us=0)
            ranks[rank] = write(tmp_path / f"{seed}{rank}", plan)
        runs.append(ranks)
    both = [
        Run.of("job", {rank: items_of(path) for rank, path in ranks.items()}, 2) for ranks in runs
    ]
    found = adding_up(traceconv.DiffReport(compare(*both)))
    assert found.comparison.critical == (0, 1)
    row = found.items["Sort"].tolist().index("critical rank")
    ranks = found.ranks
    assert found.items["Before(ns)"][row] == ranks["Before(ns)"][0] - ranks["Before(ns)"][1]
    assert found.classes["Before(ns)"][0] == ranks["Before(ns)"].max()
    assert found.classes["After(ns)"][0] == ranks["After(ns)"].max()
    assert "rank 0 was critical, now it is rank 1" in found.text()


def items_of(path):
    """The items of the only rank below a path."""
    [trace] = traceconv.open(path).traces("detail")
    return step_items(trace, collective_records(trace))


# -- what cannot be compared -------------------------------------------------------------------


def other_model():
    """Kernels that the usual model has none of."""
    return tuple(
        replace(work, kernel=f"conv_{i}_kernel", operator=f"conv{i}", module="", shape="[[1]]")
        for i, work in enumerate(model())
    )


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"works": other_model()}, "other model"),
        ({"ranks": 1}, "other world size: 2 ranks before, 1 after"),
    ],
)
def test_runs_of_other_things_are_refused(base, tmp_path, plan, reason):
    """With the reason, unless forced; then without any verdict, and the sums still hold."""
    after = write(tmp_path / "after", replace(PLAN, **plan))
    with pytest.raises(ComparisonError, match=reason) as refused:
        traceconv.diff(base, after)
    assert refused.value.exit_code == 11
    found = adding_up(traceconv.diff(base, after, force_compare=True, fail_on="step>1%"))
    assert found.verdict == "" and reason in found.reasons[0]
    assert set(found.items["Verdict"].tolist()) == {""}
    assert str(found.outcome) == "no verdict"


def test_an_empty_capture_is_refused_even_if_forced(base, tmp_path):
    """A summary holds no device work: there is nothing to show."""
    traceconv.merge(base, out=str(tmp_path / "s.json"), mode="summary")
    with pytest.raises(ComparisonError, match=r"s\.json is empty"):
        traceconv.diff(base, tmp_path / "s.json", force_compare=True)


def test_without_the_host_it_is_another_recording(base, tmp_path):
    """Recording the host costs time, and causes of waiting are known on one side only."""
    traceconv.merge(base, out=str(tmp_path / "d.json"), mode="detail", layers="step,device,comm")
    with pytest.raises(ComparisonError, match="different coverage: recorded were host, runtime"):
        traceconv.diff(base, tmp_path / "d.json")


# -- gates -------------------------------------------------------------------------------------


def test_gates_pass_fail_or_cannot_tell(base, compared, tmp_path):
    """By the whole interval: proven to be beyond, proven to be within, or neither."""
    after = write(tmp_path / "slow", replace(PLAN, seed=2, works=slower(model(), "aten::mm", 1.2)))
    found = traceconv.diff(
        base, after, fail_on=["step>5%", "step>12%", "step>30%", "op:aten::mm>10%", "op:*mm>30%",
                              "computing>1us", "comm:allreduce>900%"],
    )  # fmt: skip
    outcomes = [str(one.outcome) for one in found.gates]
    assert outcomes == ["failed", "no verdict", "passed", "failed", "passed", "failed", "passed"]
    assert str(found.outcome) == "failed"


def test_a_gate_on_what_was_not_recorded_has_no_verdict():
    """Nothing says how long these ranks wait for input: that is not 0."""
    job = ROOT / "examples/job"
    found = traceconv.diff(job, job, fail_on="input_wait>2%")
    assert [str(one.outcome) for one in found.gates] == ["no verdict"]
    assert "input_wait>2% no verdict: waits for input were not recorded" in found.text()


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("step", "'step' is not a gate like"),
        ("step>2", "is not a gate like"),
        ("stepp>2%", "no figure 'stepp' .did you mean 'step'"),
        ("op:MatMull>3%", "no operator 'MatMull' in either run; there are"),
    ],
)
def test_gates_that_are_none(base, gate, message):
    """The message says what there is."""
    with pytest.raises(OptionError, match=message):
        traceconv.diff(base, base, fail_on=gate)


# -- the parts ---------------------------------------------------------------------------------


def test_means_add_up():
    """Rounded one by one they would not."""
    sums = np.array([10, 11, 12, 0, 7], np.int64)
    assert whole_means(sums, 3).tolist() == [3, 4, 4, 0, 2]
    assert whole_means(sums, 3).sum() == round(40 / 3)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (ELEMENTWISE.format("Add<float>"), "at::native::vectorized_elementwise_kernel"),
        ("void (anonymous namespace)::k<1, 2>(int*, A<3>)", "k"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("aten::mm", "aten::mm"),
        ("a<b", "a"),
    ],
)
def test_names_without_template_parameters(name, short):
    """And without arguments and return types; others stay as they are."""
    assert plain(name) == short


def columns(*rows):
    """Items of (name, type, shape, module, first)."""
    keys = ("name", "type", "shape", "module", "first")
    found = {key: np.array([row[i] for row in rows], object if i < 4 else np.int64)
             for i, key in enumerate(keys)}  # fmt: skip
    found["sort"] = np.array(["compute"] * len(rows), object)
    return {**found, "last": found["first"]}


def paired(before, after):
    """Pairs by place: {(before, after): changed}."""
    found = match(columns(*before), columns(*after))
    rows = zip(found.before.tolist(), found.after.tolist(), strict=True)
    return dict(zip(rows, found.changed, strict=True))


def test_items_are_matched_by_name_then_shape_then_module():
    """Equal ones first, then those that differ in less and less important things."""
    before = [
        ("mm<1>", "mm", "[2]", "a", 0), ("mm<1>", "mm", "[2]", "b", 1),
        ("add", "add", "[2]", "a", 2), ("k", "conv", "[2]", "a", 3),
        ("old", "old", "", "", 4), ("t_1", "", "", "", 5),
    ]  # fmt: skip
    after = [
        ("mm<1>", "mm", "[2]", "c", 0), ("mm<1>", "mm", "[2]", "b", 1),
        ("add", "add", "[4]", "a", 2), ("z", "conv", "[2]", "a", 3),
        ("new", "new", "", "", 4), ("t_27", "", "", "", 5),
    ]  # fmt: skip
    assert paired(before, after) == {
        (1, 1): (), (0, 0): ("moved",), (2, 2): ("shape",), (3, 3): ("kernel",), (5, 5): (),
        (4, -1): ("removed",), (-1, 4): ("added",),
    }  # fmt: skip


def test_one_that_runs_elsewhere_in_the_step_has_moved():
    """All others keep their order."""
    names = "abcdef"
    before = [(name, "", "", "", i) for i, name in enumerate(names)]
    after = [(name, "", "", "", i) for i, name in enumerate("fabcde")]
    assert {b for b, c in paired(before, after).items() if c} == {(5, 0)}


def series(values):
    return Series(np.atleast_2d(np.array(values, np.float64)), np.ones(1))


def test_one_step_proves_nothing():
    """However large the difference."""
    assert half_widths(series([100]), series([500, 501]), "step").tolist() == [np.inf]
    assert verdicts(np.array([400.0]), np.array([np.inf]), np.array([1.0])) == ["no verdict"]


def test_steps_without_any_scatter_prove_a_difference():
    """As far as their time stamps are fine enough."""
    exact = half_widths(series([100.0] * 3), series([110.0] * 3), "step")
    assert exact.tolist() == [0]
    coarse = Series(np.full((1, 3), 100_000.0), np.array([1.0]), 1000)
    assert half_widths(coarse, coarse, "step")[0] > 1000
    assert (resolution(np.array([3000, 5000])), resolution(np.array([3, 5000]))) == (1000, 1)


@pytest.mark.parametrize(
    ("delta", "half", "verdict"),
    [(5, 1, "slower"), (-5, 1, "faster"), (0.5, 0.4, "no change"), (0.8, 0.5, "no verdict"),
     (5, 6, "no verdict"), (0.9, 0.05, "no change")],
)  # fmt: skip
def test_verdicts(delta, half, verdict):
    """A difference above the tolerance whose interval does not reach to 0; all of it within."""
    found = verdicts(np.array([float(delta)]), np.array([float(half)]), np.array([1.0]))
    assert found == [verdict]


def test_intervals_hold_what_is_true():
    """Of generated pairs without a difference, at most as many as promised are outside; related
    steps as well."""
    rng = np.random.default_rng(3)
    outside = Counter()
    for _ in range(400):
        for related in (0.0, 0.6):
            noise = rng.standard_normal((2, 16))
            for i in range(1, 16):
                noise[:, i] = related * noise[:, i - 1] + (1 - related**2) ** 0.5 * noise[:, i]
            one, other = (series(1000 + 10 * row) for row in noise)
            off = abs(float(one.means[0] - other.means[0]))
            outside[related] += off > half_widths(one, other, "step")[0]
    assert outside[0.0] <= 6 and outside[0.6] <= 12
