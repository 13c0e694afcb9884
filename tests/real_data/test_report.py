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


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (HTA, {"links", "curves", "critical_path"}),
        ((MINDSPORE,), set()),
        ((LEVEL1,), set()),
        ((NSIGHT,), {"links", "curves", "steps"}),
    ],
)
def test_every_pair_has_a_small_whole_page(names, missing):
    """What a source does not hold has no section, everything else is drawn; nothing is fetched."""
    overview, text = diagnosed(*names)
    lacking = {key for key in SECTIONS if "missing" in overview.get(key, ())}
    listed = {"idle_causes", "efficiency", "graphs", "memory_at_peak"}
    assert lacking - {"shape", "stages", "timeline", *listed} == missing
    assert [key for key in SECTIONS if key not in lacking] == Reader(text).ids
    assert len(text) < 100_000
    assert "http://" not in text and "https://" not in text


def test_the_late_rank_of_the_pytorch_pair_is_observed():
    """Rank 1 takes 5.6 ms longer before its all-reduce. One step is too few for a verdict."""
    overview, _ = diagnosed(LEVEL1)
    assert overview["sentences"][1].startswith("No verdict: only one step was captured")
    assert [one["class"] for one in overview["losses"]][:3] == ["exposed", "idle", "input"]
    assert [one for one in overview["findings"] if one["rule"] == "straggler"] == []


def test_the_sampled_pair_has_no_straggler():
    """Its ranks exchange point-to-point operations that its files record in part."""
    overview, _ = diagnosed(*HTA)
    assert overview["sentences"][1].startswith("No verdict: ")
    assert overview["straggler"]["culprit"] is None
