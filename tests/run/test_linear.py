"""The work on a run grows no faster than the number of its ranks."""

import json
import sys

import pytest

from traceconv.cli import run

FEW, MANY = 4, 16


def recorded(folder, ranks):
    """The captures of a job whose ranks share all collectives: two steps, four kernels each."""
    folder.mkdir()
    for rank in range(ranks):
        events = []
        for step in range(2):
            at = 1000 * step + rank % 7
            group = {"Process Group Name": "0", "Group size": ranks, "Seq": step}
            collective = {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float"}
            kernels = [
                ("gemm", 7, at + 10, {}),
                ("ncclKernel_AllReduce", 20, at + 500, {**group, **collective}),
            ]
            for number, (name, tid, start, args) in enumerate(kernels):
                link = {"correlation": 2 * step + number}
                events += [
                    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": rank + 9,
                     "tid": 1, "ts": at + number, "dur": 1, "args": link},
                    {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": tid, "ts": start,
                     "dur": 100, "args": {**link, "stream": tid, "device": 0, **args}},
                ]  # fmt: skip
            mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}"}
            events.append({**mark, "pid": rank + 9, "tid": 1, "ts": at, "dur": 900})
        record = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": ranks}}
        record |= {"baseTimeNanoseconds": 10**18, "traceEvents": events}
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(record))
    return str(folder)


def calls(words):
    """How many functions, and items of generators, a command calls."""
    count = 0

    def note(frame, event, of):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        assert run(words) == 0
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "words",
    [
        ["inspect"],
        ["merge", "-o", "t.json", "-f", "--report", "t.html"],
        *(["align", "--align", method] for method in ("collective", "meta", "wall")),
        ["stragglers"],
        ["critical-path"],
        ["what-if"],
        ["diagnose", "-o", "t.html", "-f"],
    ],
    ids=" ".join,
)
def test_work_is_in_proportion_to_ranks(tmp_path, monkeypatch, capsys, words):
    """Four times as many ranks are no more than 4 ** 1.1 times the calls."""
    monkeypatch.chdir(tmp_path)
    few, many = (recorded(tmp_path / str(n), n) for n in (FEW, MANY))
    once = [*words, "-q", "-j", "1"]
    assert run([*once, few]) == 0  # modules are loaded, patterns are compiled
    assert calls([*once, many]) < (MANY / FEW) ** 1.1 * calls([*once, few])
