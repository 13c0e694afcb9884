"""Real Nsight Systems exports: the counts of their README, from written Perfetto files."""

from collections import Counter
from functools import cache

import pytest
from decoded import decode
from paths import GPU
from perfetto_decoded import shown_on

import traceconv
from traceconv.validation import validate

NSYS = GPU / "nsys"
CLOVERLEAF, SAXPY = "perlmutter-cloverleaf-cuda", "saxpy-mpi-cuda_nsys_perlmutter0"
MFU, MOCK = "mfu_2gpu_after", "mock"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Merges an export in detail, once; the report, and what a viewer shows of the file."""
    folder = tmp_path_factory.mktemp("nsight")

    @cache
    def merge(name):
        out = folder / f"{name}.pftrace"
        report = traceconv.merge(str(NSYS / f"{name}.sqlite"), out=str(out), mode="detail")
        assert validate(out).ok
        return report, decode(out)

    return merge


def tasks(seen):
    """(rank, stream, name, start, dur, arguments) of every device row."""
    rows = seen.slices
    return [
        (
            path[0].split()[1],
            shown_on(path)[-1],
            rows.name[i],
            int(rows.ts[i]),
            int(rows.dur[i]),
            rows.args(i),
        )
        for i, path in enumerate(rows.track)
        if shown_on(path)[-1].startswith(("Stream", "No stream"))
        and ("Hardware" in shown_on(path)[0] or shown_on(path)[0] == "NCCL")
    ]


def kernels(seen):
    """Device rows that have a grid."""
    return [task for task in tasks(seen) if any(key.startswith("grid") for key in task[5])]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "count", "total"),
    [(SAXPY, 5, 88573480), (CLOVERLEAF, 1312, 294404540), (MFU, 3587, 488835406), (MOCK, 2, None)],
)
def test_kernels(written, name, count, total):
    """Their number and the sum of their durations."""
    found = kernels(written(name)[1])
    assert len(found) == count
    assert total in (None, sum(task[4] for task in found))


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        (SAXPY, {"Host-to-Device": (10, 2621440000), "Device-to-Host": (5, 1310720000)}),
        (CLOVERLEAF, {"Host-to-Device": (254, 225065752), "Device-to-Host": (25, 51200)}),
        (MFU, {"Host-to-Device": (32, 256), "Device-to-Device": (872, 7195376640)}),
        (MOCK, {"Device-to-Host": (1, 4)}),
    ],
)
def test_copies(written, name, copies):
    """Their number and bytes by direction."""
    count, size = Counter(), Counter()
    for *_, args in tasks(written(name)[1]):
        if "kind" in args:
            count[args["kind"]] += 1
            size[args["kind"]] += args["bytes"]
    assert {kind: (count[kind], size[kind]) for kind in count} == copies


@pytest.mark.parametrize(
    ("name", "calls", "copies_of_calls"),
    [(SAXPY, 57, 38), (CLOVERLEAF, 3048, 0), (MFU, 6682, 0), (MOCK, 9, 0)],
)
def test_runtime_calls(written, name, calls, copies_of_calls):
    """Every call once; rows that repeat a call for its backtrace are counted."""
    report, seen = written(name)
    assert sum(shown_on(path)[0] == "CUDA" for path in seen.slices.track) == calls
    assert report.issues.count("repeated-content") == copies_of_calls


def test_two_ranks_in_one_report(written):
    """Two processes, 62 collectives, arrows to the 3577 kernels whose launch was recorded."""
    report, seen = written(MFU)
    assert report.ranks == (0, 1)
    assert [c["rank_from"] for c in report.captures] == ["one process per device"] * 2
    by_rank = Counter((rank, stream) for rank, stream, *_ in kernels(seen))
    assert by_rank == {("0", "Stream 7"): 1793, ("1", "Stream 15"): 1794}
    assert sum(shown_on(path)[0] == "NCCL" for path in seen.slices.track) == 62
    index = {int(n): i for i, n in enumerate(seen.slices.index.tolist())}
    targets = {index[int(row)] for row in seen.flows.target.tolist()}
    launched = [i for i in targets if "grid[0]" in seen.slices.args(i)]
    assert len(launched) == 3577


@pytest.mark.parametrize("name", [SAXPY, CLOVERLEAF, MFU, MOCK])
def test_what_goes_in_comes_out_or_is_reported(written, name):
    """The ledger of every rank sums to what is in the file."""
    report, seen = written(name)
    sums = Counter()
    for stages in report.ledger.values():
        for kinds in stages.values():
            sums.update(kinds)
    counts = seen.counts()
    assert sums["slice"] == counts["slices"]
    assert sums["flow"] == counts["flows"]


@pytest.mark.parametrize("name", [CLOVERLEAF, MFU])
def test_overlap_is_that_of_a_plain_sweep(written, name):
    """Computing and communication of every rank, by loops that share no code with ours."""
    _, seen = written(name)
    rows = seen.slices
    found = Counter()
    for i, path in enumerate(rows.track):
        if "Overlap Analysis" in path:
            found[path[0].split()[1], rows.name[i]] += int(rows.dur[i])
    for rank in {task[0] for task in tasks(seen)}:
        mine = [task for task in kernels(seen) if task[0] == rank]
        comm = [(s, s + d) for _, _, n, s, d, _ in mine if "nccl" in n.lower()]
        work = [(s, s + d) for _, _, n, s, d, _ in mine if "nccl" not in n.lower()]
        covered = {
            "Computing": _length(work),
            "Communication": _length(comm),
            "Communication(Not Overlapped)": _length(comm + work) - _length(work),
        }
        assert {name: found[rank, name] for name in covered} == covered


def _length(spans):
    """Length of a union of intervals, one after the other."""
    total, reach = 0, None
    for start, end in sorted(spans):
        if reach is None or start > reach:
            reach = start
        total, reach = total + max(0, end - reach), max(reach, end)
    return total


@pytest.mark.parametrize(
    ("name", "memory"),
    [(CLOVERLEAF, {0: 84_990_623_744}), (SAXPY, {0: 42_297_524_224})],
)
def test_memory_of_gpus_is_noted(name, memory):
    """Of the one in use: the machine of the first has four."""
    for trace in traceconv.open(str(NSYS / f"{name}.sqlite")).traces(None):
        assert trace.hints.device_memory_bytes == memory
