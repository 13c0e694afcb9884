"""Figures beside those that HTA and TraceLens print for the same files.

HTA f4d0062 with ``include_last_profiler_step``, TraceLens 171dd747. Known differences: HTA rounds
timestamps down to whole us, so its figures are exact only for traces in us, and it measures idle
time from the first to the last kernel. TraceLens counts memory fills and custom all-reduces as
computing, and averages rates, where a rate here is of the average time.
"""

import pytest
from paths import GPU

import traceconv

HTA = {
    0: {"compute": 210320, "other": 337336, "span": 1222847, "idle": 675191, "overlap": 14.95},
    1: {"compute": 271973, "other": 308077, "span": 1231186, "idle": 651136, "overlap": 19.93},
}
"""``get_temporal_breakdown`` in us, and ``get_comm_comp_overlap`` in percent."""


@pytest.mark.parametrize("rank", HTA)
def test_a_breakdown_of_time_is_that_of_hta(rank):
    """Computing, what else is busy, and idle time but for the ends of the steps."""
    path = GPU / f"kineto/hta_sampled_rank-{rank}.json.gz"
    table = traceconv.stats(str(path), by="overlap")["overlap"].columns
    [row] = (table["Step"] < 0).nonzero()[0]
    us = {name: column[row] / 1000 for name, column in table.items() if name.endswith("(ns)")}
    exposed = us["Communication Not Overlapped(ns)"]
    communication = exposed + us["Communication Overlapped(ns)"]
    wanted = HTA[rank]
    assert us["Total Compute(ns)"] == wanted["compute"]
    assert exposed + us["Memory Copy Not Overlapped(ns)"] == wanted["other"]
    assert us["Idle(ns)"] - wanted["idle"] == us["Known(ns)"] - wanted["span"]
    percent = 100 * us["Communication Overlapped(ns)"] / communication
    assert percent == pytest.approx(wanted["overlap"], abs=0.005)


QUEUES = {
    "hta_sampled_rank-0": {7: (1052, 80), 23: (126, 4), 25: (16, 8), 84: (8, 2), 203: (2, 1)},
    "hta_ns_rank-0.Apr_03_18_51_38.1102.pt.trace": {7: (6095, 1022)},
    "hta_alexnet_cuda_sync": {7: (91, 18), 20: (7, 2)},
}
"""``get_queue_length_summary``: launches (half the changes) and the longest queue, by stream."""


@pytest.mark.parametrize("name", QUEUES)
def test_queues_are_as_long_as_those_of_hta(name):
    """Launches and longest queue of every stream that HTA lists."""
    path = GPU / f"kineto/{name}.json.gz"
    table = traceconv.stats(str(path), by="launch_queue")["launch_queue"].columns
    columns = (table[key].tolist() for key in ("Stream", "Launches", "Max Length"))
    ours = {stream: rest for stream, *rest in zip(*columns, strict=True)}
    for stream, wanted in QUEUES[name].items():
        assert ours[f"Stream {stream}"] == list(wanted)


GEMM, FLASH = "aten::addmm", "aten::_flash_attention_forward"
TRACELENS = {
    "tracelens_h100_bert_small": [
        (GEMM, 0.0739968, 0.7763671875, 17, 98.718),
        (GEMM, 4.41119205, 38.211021423339844, 1, 41.28),
        (GEMM, 0.295770624, 2.689453125, 4, 33.089),
        (GEMM, 0.2959872, 2.6923828125, 4, 24.511),
        (FLASH, 0.040716288, 0.55078125, 4, 37.408),
    ],
    "tracelens_torch_compile_triton": [
        ("aten::mm", 1099.511627776, 672, 2, 3749.165),
        ("aten::mm", 274.877906944, 264, 4, 2246.691),
        ("aten::mm", 1099.511627776, 672, 1, 2033.699),
        (FLASH, 1099.511627776, 512, 1, 3683.509),
    ],
}  # fmt: skip
"""Sheets GEMM and SDPA_fwd: operator, GFLOP and MiB of a call, calls, us of all."""


@pytest.mark.parametrize("name", TRACELENS)
def test_products_and_attention_are_those_of_tracelens(name):
    """FLOPs, bytes, calls and kernel time of every row."""
    path = GPU / f"kineto/{name}.json.gz"
    table = traceconv.stats(str(path), by="operator_flops")["operator_flops"].columns
    keys = ("Kind", "Operator", "FLOPs", "Bytes", "Count", "Total Time(ns)")
    rows = zip(*(table[key].tolist() for key in keys), strict=True)
    ours = sorted((op, f / 1e9, b / 2**20, n, ns / 1000) for kind, op, f, b, n, ns in rows
                  if kind in ("GEMM", "attention"))  # fmt: skip
    for mine, theirs in zip(ours, sorted(TRACELENS[name]), strict=True):
        assert mine[0] == theirs[0]
        assert mine[1:] == pytest.approx(theirs[1:], rel=1e-6, abs=1e-3)
