"""What people type, as values; what is none of it is refused with what would be."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from golden_cases import case_folder
from paths import ROOT

import traceconv
from traceconv.core.errors import OptionError, SelectionError
from traceconv.core.model import Layer
from traceconv.options import values as options
from traceconv.options import values as typed
from traceconv.options import verbs
from traceconv.options.groups import Limits
from traceconv.passes import VIEWS
from traceconv.run import engines
from traceconv.writers.size_limit import POLICIES

SAMPLE = ROOT / "golden" / "trace_view" / "demo" / "input"


# -- numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0-2,5", (0, 1, 2, 5)), ("7", (7,)), ("3,1,3", (1, 3)), ("all", None), (None, None),
        (3, (3,)), ([2, 0, 2], (0, 2)), (range(4), (0, 1, 2, 3)), ((1,), (1,)), ({5}, (5,)),
        (np.int64(4), (4,)), (np.array([1, 2]), (1, 2)), (iter([1]), (1,)),
    ],
)  # fmt: skip
def test_numbers(value, expected):
    """Ranges and single numbers, sorted, each once."""
    assert options.numbers(value, "ranks") == expected


@pytest.mark.parametrize(
    "value",
    ["", "a", "1-", "5-3", "-1", "0-99999999999", True, 1.5, [1.0], ["1"], [], -1, {"a": 1}, b"1",
     range(10**20), "0-999999,2000000-2999999"],
)  # fmt: skip
def test_numbers_refused(value):
    """No half ranges, no words, no fractions, no truth values, no zero too many, and no million
    twice: so many are not made."""
    with pytest.raises(OptionError, match=r"^`ranks`: "):
        options.numbers(value, "ranks")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("200M", 200 << 20), ("1.5k", 1536), ("2GiB", 2 << 30), ("17", 17), ("4 MB", 4 << 20),
        (17, 17), (np.int32(5), 5), (None, None),
    ],
)  # fmt: skip
def test_sizes_are_binary(value, expected):
    """Units of bytes are powers of 1024."""
    assert options.size(value, "limit") == expected


@pytest.mark.parametrize("value", ["", "M", "1X", "0", 0, -5, 1.5, True, "0.0001K"])
def test_sizes_refused(value):
    """With what a size is."""
    with pytest.raises(OptionError, match=r"a size like 800K|less than 1"):
        options.size(value, "limit")


def test_counts_are_decimal():
    """A million events is a million events."""
    assert options.count("1.5M", "max_events") == 1_500_000


# -- times ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.2s:1.5s", (1_200_000_000, 1_500_000_000)), ("300ms:", (300_000_000, None)),
        (":2us", (None, 2_000)), ("0s:7ns", (0, 7)), ((5, None), (5, None)), ([1, 2], (1, 2)),
        (("1us", "2us"), (1000, 2000)), (None, None), ((None, None), (None, None)),
    ],
)  # fmt: skip
def test_windows(value, expected):
    """Exact ns, either end open."""
    assert options.window(value, "time") == expected


@pytest.mark.parametrize(
    "value",
    ["1:2", ":", "2s:1s", "s:1s", "1s", "1s:1s", (0.5, 1.0), (1,), 5, (2, 1), (0, 2**64), True],
)
def test_windows_refused(value):
    """A time needs its unit or is whole ns, a window has its order."""
    with pytest.raises(OptionError, match=r"^`time`: "):
        options.window(value, "time")


def test_lengths():
    """Text with a unit, or ns."""
    assert [options.length(v, "x") for v in ("50us", 7, None)] == [50_000, 7, None]
    for value in ("50", -1, "-1us", 0.5):
        with pytest.raises(OptionError):
            options.length(value, "x")


# -- words ---------------------------------------------------------------------------------


def test_words():
    """One, several in a text, or a list."""
    assert options.words("kernel", "by") == ("kernel",)
    assert options.words(" step , overlap,", "by") == ("step", "overlap")
    assert options.words(["a,b"], "by") == ("a,b",)
    for value in (5, [5], {"a": 1, 2: 3}):
        with pytest.raises(OptionError, match=r"^`by`: "):
            options.words(value, "by")


def test_layers():
    """Names of layers, and what is none with what it may have meant."""
    assert options.layers("device, comm,device", "layers") == ("device", "comm")
    with pytest.raises(OptionError, match=r"no layer 'devices' .did you mean 'device'.*there are"):
        options.layers(["devices"], "layers")


def test_arguments_that_are_kept():
    """All, none, or some."""
    found = [options.kept_args(value, "args") for value in (None, "all", "none", (), "a,b", ["a"])]
    assert found == [None, None, (), (), ("a", "b"), ("a",)]


def test_thresholds():
    """A mapping, a text, or texts."""
    for value in ({"long-tail": 30}, "long-tail=30", ["long-tail=30.0"]):
        assert options.thresholds(value, "threshold") == {"long-tail": 30.0}
    assert options.thresholds(None, "threshold") == {}
    for value in ("long-tail", {"x": "30"}, {"x": float("nan")}, {"x": True}, 5):
        with pytest.raises(OptionError, match=r"^`threshold`: "):
            options.thresholds(value, "threshold")


def test_choices():
    """Modes, engines, methods and policies that there are not."""
    assert [options.mode(m, "mode") for m in ("detail", None)] == ["detail", "source"]
    for given, meant in (
        ({"mode": "detial"}, "detail"),
        ({"engine": "locl"}, "local"),
        ({"align": "colective"}, "collective"),
        ({"over_limit": "splt"}, "split"),
        ({"layout": "lanes"}, "lane"),
    ):
        with pytest.raises(OptionError, match=rf"did you mean '{meant}'.*there are: "):
            verbs.MergeRequest.of(given)
    with pytest.raises(OptionError, match=r"there are: summary, detail, source"):
        options.mode(5, "mode")


def test_limits():
    """Bytes, text or a limit; what is done at it."""
    split = traceconv.SizeLimit(5, None, "split")

    def limit(**given):
        return Limits.of(given).size_limit()

    assert limit(limit="1K", over_limit="split") == traceconv.SizeLimit(1024, None, "split")
    assert (limit(limit=5, over_limit="split"), limit(limit=split), limit()) == (split, split, None)
    assert limit(max_events="2K") == traceconv.SizeLimit(None, 2000)
    assert limit(target="chrome", max_size=7) == traceconv.SizeLimit(7, 2_000_000)
    with pytest.raises(OptionError, match=r"`over_limit`: 'fail', but `limit` says 'split'"):
        limit(limit=split, over_limit="fail")


def test_a_decimal_comma_is_answered_with_a_point():
    """Where half of the world writes one."""
    for parse in (options.window, options.size, options.length, options.percent):
        with pytest.raises(OptionError, match=r"decimal comma; write '1\.5"):
            parse("1,5s:2s" if parse is options.window else "1,5", "x")


def test_paths():
    """Texts, paths and lists, in any mixture."""
    assert options.paths(["a", Path("b"), ["c", Path("d")]]) == ["a", "b", "c", "d"]
    for value in (5, [5], b"a", "", {"a": 1}, None):
        with pytest.raises(OptionError, match=r"^`paths`: "):
            options.paths([value])


def test_shards():
    """As text or numbers."""
    assert (options.shard("2/8", "x"), options.shard((2, 8), "x"), options.shard(None, "x")) == (
        (2, 8), (2, 8), None,
    )  # fmt: skip
    for value in ("8/8", "1", 5, (1,), (1, 2.5)):
        with pytest.raises(OptionError, match=r"^`shard`: "):
            options.shard(value, "shard")


def test_what_a_parser_returned_it_takes_again():
    """The command line parses before the library does."""
    for parse, value in (
        (options.numbers, "0-3"), (options.window, "1s:2s"), (options.size, "2M"),
        (options.words, "a,b"), (options.layers, "device"), (options.kept_args, "none"),
        (options.thresholds, "long-tail=3"), (options.length, "5us"),
    ):  # fmt: skip
        once = parse(value, "x")
        assert parse(once, "x") == once


def test_literals_are_what_there_is():
    """Type checkers know the same words as the library."""
    assert get_args(typed.LayerName) == tuple(map(str, Layer))
    assert get_args(typed.EngineName) == engines.ENGINES
    assert get_args(typed.OverLimit) == POLICIES
    assert set(get_args(typed.Mode)) == {*VIEWS, "source"}


# -- verbs ---------------------------------------------------------------------------------


def test_a_merge_takes_what_people_type(tmp_path, on_disk):
    """Paths, texts and numbers; the same trace as from exact values."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    traceconv.merge(
        SAMPLE, out=one, ranks="1", mode="detail", steps=2, time="0s:1s", layers="device",
        args="none", limit="200M", over_limit="split", mem_limit="2G", jobs=1,
        comm_patterns="reduce", align_max_error_ns=None,
    )  # fmt: skip
    traceconv.merge(
        [str(SAMPLE)], out=str(two), ranks=[1], mode="detail", steps=range(2, 3),
        time=(0, 10**9), layers=["device"], args=(), jobs=1,
        limit=traceconv.SizeLimit(200 << 20, None, "split"),
    )  # fmt: skip
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("case", "marker", "expected"),
    [
        ("kineto/step_marker", r"micro batch (\w+) of", [82, 83, 84, 85]),
        ("nsight/training", r"^Linear_fwd", [0, 1]),  # NVTX
        ("rocprof/schema_3", r"forward", [0, 1]),  # rocTX
    ],
)
def test_every_verb_takes_the_ranges_that_are_steps(tmp_path, case, marker, expected):
    """Annotations, NVTX and rocTX; where events stay as they are, the steps come in, too."""
    path, first = case_folder(ROOT / "golden" / case) / "input", {}
    first["open"], *_ = traceconv.open(path).traces("detail", step_marker=marker)
    rank = first["open"].rank
    assert first["open"].steps.step.tolist() == expected
    asked = traceconv.stats(path, ranks=rank, step_marker=marker, steps=expected[1:])
    assert asked.results[0].data.columns["Count"][0] == len(expected) - 1
    for mode in ("summary", "source"):
        out = tmp_path / f"{mode}.txt"
        traceconv.merge(path, out=out, mode=mode, ranks=rank, step_marker=marker)
        text = out.read_text()
        assert [f" iteration step={n}" in text for n in expected] == [True] * len(expected)
    for verb in (traceconv.diagnose, traceconv.stragglers):
        with pytest.raises(SelectionError, match=f"7777 .*found: {expected[0]}-"):
            verb(path, step_marker=marker, steps=7777)
        with pytest.raises(OptionError, match="`step_marker`: 'a\\(' is not a regular"):
            verb(path, step_marker="a(")


def test_a_selection_and_options_at_once(tmp_path):
    """In place of the keywords, not beside them."""
    one, two, three = (tmp_path / f"{i}.json" for i in range(3))
    selection = traceconv.Selection(ranks=(0,), steps=(2,))
    traceconv.merge(SAMPLE, out=one, mode="detail", ranks=0, steps="2")
    traceconv.merge(SAMPLE, out=two, mode="detail", selection=selection)
    whole = traceconv.MergeOptions(mode="detail", selection=selection)
    traceconv.merge(SAMPLE, out=three, merge_options=whole)
    assert one.read_bytes() == two.read_bytes() == three.read_bytes()
    with pytest.raises(OptionError, match=r"is given together with `ranks`"):
        traceconv.merge(SAMPLE, out=one, selection=selection, ranks=0)
    with pytest.raises(OptionError, match="is given together with"):
        traceconv.merge(SAMPLE, out=one, merge_options=whole, mode="detail")
    assert traceconv.stats(SAMPLE, selection=selection).ranks == (0,)
    device = traceconv.stats(
        SAMPLE, by="kernel,memory", selection=traceconv.Selection(layers=("device",))
    )
    assert {one.table.name for one in device.results if one.rows} == {"kernel", "copy"}


def test_other_verbs_take_what_people_type():
    """One table, one rank, one step, one rule."""
    assert traceconv.stats(SAMPLE, by="kernel", ranks=0, top=3).ranks == (0,)
    assert traceconv.diagnose(SAMPLE, rule="long-tail", threshold="long-tail=99").findings.quiet
    assert traceconv.stragglers(SAMPLE, ranks="0-1", steps=2).verdict.ranks == (0, 1)
    assert list(traceconv.align([SAMPLE], ranks=range(2)).plan.offsets) == [0, 1]
    assert [t.rank for t in traceconv.open(SAMPLE).ranks("0").traces("detail", steps=2)] == [0]
    assert len(traceconv.inspect(SAMPLE).captures) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: traceconv.merge("x", mode="detial"),
        lambda: traceconv.merge("x", layers="devcie"),
        lambda: traceconv.merge("x", jobs=0),
        lambda: traceconv.merge("x", exclude="("),
        lambda: traceconv.merge("x", engine="dusk"),
        lambda: traceconv.merge("x", mem_limit="lots"),
        lambda: traceconv.merge(5),
        lambda: traceconv.merge("x", out=5),
        lambda: traceconv.open("x", reader=5),
        lambda: traceconv.inspect("x", rank_from=5),
        lambda: traceconv.stats("x", by="kernl"),
        lambda: traceconv.stats("x", top=0),
        lambda: traceconv.align("x", method="colective"),
        lambda: traceconv.stragglers("x", steps="a"),
        lambda: traceconv.diagnose("x", rule="long-tial"),
    ],
)
def test_verbs_refuse_before_they_look(call):
    """The argument is named, whatever the paths."""
    with pytest.raises(OptionError, match=r"^`[a-z_]+`: ") as caught:
        call()
    assert caught.value.exit_code == 2


def test_a_step_that_no_rank_has_is_refused_by_every_verb():
    """One place says so."""
    for verb in (traceconv.stats, traceconv.stragglers, traceconv.diagnose):
        with pytest.raises(SelectionError, match="step 99 is in none of the ranks"):
            verb(SAMPLE, steps=99)
