"""Reports on real pairs of ranks: each is a whole page, and says what is known of its pair."""

import pytest
from html_page import SECTIONS, Reader
from paths import DATA

import traceconv

LEVEL1 = "ascend/msinsight/test/data/pytorch/text/level1"
MINDSPORE = "ascend/mindinsight/profiler"
NSIGHT = "gpu/nsys/mfu_2gpu_after.sqlite"
HTA = ("gpu/kineto/hta_sampled_rank-0.json.gz", "gpu/kineto/hta_sampled_rank-1.json.gz")


def diagnosed(*names):
    """The diagnosis of a pair, and its page."""
    found = traceconv.diagnose(*(str(DATA / name) for name in names), analyse=True)
    return found.document["overview"], found.html_text()


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (HTA, {"links", "curves", "critical_path"}),
        ((MINDSPORE,), set()),
        ((LEVEL1,), set()),
        ((NSIGHT,), {"links", "curves", "steps", "critical_path"}),
    ],
)
def test_every_pair_has_a_small_whole_page(names, missing):
    """What a source does not hold is named, everything else is drawn; nothing is fetched."""
    overview, text = diagnosed(*names)
    assert missing == {key for key in SECTIONS if "missing" in overview.get(key, ())}
    assert list(SECTIONS) == Reader(text).ids
    assert len(text) < 100_000
    assert "http://" not in text and "https://" not in text


def test_the_late_rank_of_the_pytorch_pair_is_observed():
    """Rank 1 starts its all-reduce 5.6 ms after rank 0: the starts of the files say so. It is one
    of one step, so nobody is called a straggler, and nothing is said to be lost for that."""
    overview, _ = diagnosed(LEVEL1)
    assert "came last to allreduce of hccl 586, by 5.60 ms" in overview["sentences"][1]
    assert [one["class"] for one in overview["losses"]][:3] == ["exposed", "idle", "input"]
    assert [one for one in overview["findings"] if one["rule"] == "straggler"] == []


def test_the_sampled_pair_has_no_straggler():
    """Its ranks exchange messages: they are not compared."""
    overview, _ = diagnosed(*HTA)
    assert "no two ranks did the same in one step" in overview["sentences"][1]
    assert overview["straggler"]["culprit"] is None
