"""Payloads of NCCL's ranges in Nsight reports: on the ranges, and through launches on kernels."""

import sqlite3
import struct
from contextlib import closing

import numpy as np
import pytest
from nsight_files import (
    ENTRIES,
    INIT,
    KERNEL,
    MESSAGE,
    NCCL,
    NVTX,
    RUNTIME,
    call,
    captures,
    kernel,
    payload,
    range_,
    rows,
    traces,
    write,
)

from traceconv.core.model import Layer
from traceconv.readers.nsight.payloads import payloads
from traceconv.readers.shared.sqlite.database import Database

COMM, OTHER = 0xF00D_F00D_1234_5678, 0xBEEF


def report(path, ranges, kernels, calls, entries=ENTRIES):
    """A process whose NCCL ranges are given."""
    tables = {NVTX: ranges, KERNEL: kernels, RUNTIME: calls}
    return write(path / "r.sqlite", **tables, NVTX_PAYLOAD_SCHEMA_ENTRIES=entries)


def all_reduce(start, size, comm=COMM, **more):
    return range_(
        start, start + 20, "ncclAllReduce", domain=1, blob=payload(MESSAGE, comm, size, 3), **more
    )


def said(trace):
    """(lane, bytes, communicator) of the kernels that communicate."""
    return [
        (track.name, args.get("bytes"), args.get("communicator"))
        for track, _, _, _, args in rows(trace, Layer.COMM)
    ]


LANE = "Communicator 0xf00df00d12345678"


def test_payloads_are_arguments_of_their_ranges(tmp_path):
    """Whole numbers under short names; ids of communicators, beyond an int64, as text."""
    [trace] = traces(report(tmp_path, [all_reduce(10, 4096)], [kernel(1, 2)], []))
    [(_, name, _, _, args)] = rows(trace, Layer.HOST)
    assert (name, args) == (
        "ncclAllReduce", {"communicator": "0xf00df00d12345678", "bytes": 4096, "reduction": 3}
    )  # fmt: skip


@pytest.mark.parametrize("asked", [[1, 2, 3], [3, 1, 2], [3, 1, 3], [9, 2], []])
def test_payloads_belong_to_the_rows_that_are_asked_for(tmp_path, asked):
    """In whatever order their numbers were found: those of a damaged table are in any."""
    path = report(tmp_path, [all_reduce(10 * n, 1000 * n) for n in (1, 2, 3)], [], [])
    with closing(sqlite3.connect(path)) as connection:
        groups, bad = payloads(Database(connection, "r"), np.array(asked, np.int64))
    found = {at: size for g in groups for at, size in zip(g.at, g.values["bytes"], strict=True)}
    assert bad == 0
    first = {number: asked.index(number) for number in asked if number <= 3}
    assert found == {at: 1000 * number for number, at in first.items()}


def test_a_kernel_takes_size_and_lane_of_the_call_that_launched_it(tmp_path):
    """By the time of its launch on that thread, not by its own; compute kernels take nothing."""
    ranges = [all_reduce(10, 4096), all_reduce(50, 1024, OTHER)]
    kernels = [kernel(500, 600, 1, NCCL), kernel(600, 700, 2, NCCL), kernel(700, 800, 3)]
    [trace] = traces(report(tmp_path, ranges, kernels, [call(12, 1), call(55, 2), call(60, 3)]))
    assert said(trace) == [
        ("Communicator 0xbeef", 1024, "0xbeef"), (LANE, 4096, "0xf00df00d12345678")
    ]  # fmt: skip
    [(_, _, _, _, args)] = rows(trace, Layer.DEVICE)
    assert "bytes" not in args


def test_the_call_tells_a_send_from_a_receive(tmp_path):
    """One kernel carries out both; the calls of an exchange, in one group, have no common name."""
    move = payload(MESSAGE, COMM, 64, 0)
    ranges = [range_(10, 20, "ncclSend", domain=1, blob=move),
              range_(30, 40, "ncclRecv", domain=1, blob=move),
              *group(range_(110, 120, "ncclSend", domain=1, blob=move),
                     range_(130, 140, "ncclRecv", domain=1, blob=move))]  # fmt: skip
    kernels = [kernel(500 + n, 501 + n, n, NCCL) for n in (1, 2, 3)]
    calls = [call(12, 1), call(32, 2), call(210, 3)]
    [trace] = traces(report(tmp_path, ranges, kernels, calls))
    names = [args.get("Collective name") for *_, args in rows(trace, Layer.COMM)]
    assert names == ["ncclSend", "ncclRecv", None]


def test_a_kernel_launched_elsewhere_stays_on_its_stream(tmp_path):
    """Between the calls, on another thread, or by a call nobody recorded."""
    kernels = [kernel(500, 600, n, NCCL) for n in (1, 2, 3)]
    calls = [call(40, 1), call(12, 2, tid=9)]
    [trace] = traces(report(tmp_path, [all_reduce(10, 4096)], kernels, calls))
    assert said(trace) == [("Stream 7", None, None)] * 3


def group(*inside):
    """Calls of NCCL between a start and an end, in which what they ask for is launched."""
    return [
        range_(100, 105, "ncclGroupStart", domain=1),
        *inside,
        range_(200, 230, "ncclGroupEnd", domain=1),
    ]


def test_the_kernel_of_a_group_moves_what_its_calls_ask_for(tmp_path):
    """The sum of their sizes; groups within a group count to it."""
    inner = [
        range_(115, 116, "ncclGroupStart", domain=1),
        range_(160, 161, "ncclGroupEnd", domain=1),
    ]
    ranges = group(all_reduce(120, 1000), *inner, all_reduce(170, 24))
    [trace] = traces(report(tmp_path, ranges, [kernel(500, 600, 1, NCCL)], [call(210, 1)]))
    assert said(trace) == [(LANE, 1024, "0xf00df00d12345678")]


def test_of_several_kernels_of_a_group_none_gets_a_size(tmp_path):
    """Nobody says which moved what; the communicator is still that of all."""
    kernels = [kernel(500, 600, 1, NCCL), kernel(600, 700, 2, NCCL)]
    ranges = group(all_reduce(120, 1000), all_reduce(150, 24))
    [trace] = traces(report(tmp_path, ranges, kernels, [call(205, 1), call(215, 2)]))
    assert said(trace) == [(LANE, None, "0xf00df00d12345678")] * 2


def test_a_group_of_two_communicators_has_none(tmp_path):
    """Its kernel stays on its stream, with the size of all."""
    ranges = group(all_reduce(120, 1000), all_reduce(150, 24, OTHER))
    [trace] = traces(report(tmp_path, ranges, [kernel(500, 600, 1, NCCL)], [call(210, 1)]))
    assert said(trace) == [("Stream 7", 1024, None)]


def test_a_group_whose_start_was_cut_off_is_no_group(tmp_path):
    """Its end takes nothing with it."""
    ranges = [range_(5, 8, "ncclGroupEnd", domain=1), all_reduce(120, 1000)]
    [trace] = traces(report(tmp_path, ranges, [kernel(500, 600, 1, NCCL)], [call(125, 1)]))
    assert said(trace) == [(LANE, 1000, "0xf00df00d12345678")]


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"short",
        payload(MESSAGE, COMM, 4096, 3)[:40],
        payload(MESSAGE + 1, COMM, 4096, 3),
        payload(MESSAGE, COMM, 4096, 3, domain=2),
        struct.pack("<IIIIQQ", 1, 0, MESSAGE, 0, 2**63, 0) + b"x" * 24,
    ],
    ids=["empty", "head cut off", "payload cut off", "unknown schema", "other domain", "too long"],
)
def test_a_payload_that_cannot_be_read_is_booked(tmp_path, blob):
    """The range stays, without arguments."""
    ranges = [range_(10, 30, "ncclAllReduce", domain=1, blob=blob)]
    [trace] = traces(report(tmp_path, ranges, [kernel(1, 2)], []))
    assert [(name, args) for _, name, _, _, args in rows(trace, Layer.HOST)] == [
        ("ncclAllReduce", {})
    ]
    assert trace.issues.count("malformed-record") == 1


def test_payloads_spelled_as_json(tmp_path):
    """Of exports without blobs; only what NCCL says is taken, nothing of the user's own."""
    text = '{"NCCL communicator ID": 48879, "Message size [bytes]": 64, "token": "secret", "a": 1}'
    ranges = [range_(10, 30, "ncclAllReduce", domain=1, json=text), range_(40, 50, "x", json="[1")]
    [trace] = traces(report(tmp_path, ranges, [kernel(90, 99, 1, NCCL)], [call(12, 1)]))
    assert said(trace) == [("Communicator 0xbeef", 64, "0xbeef")]
    assert rows(trace, Layer.HOST)[0][4] == {"communicator": "0xbeef", "bytes": 64}
    assert trace.issues.count("malformed-record") == 1


def made(rank, ranks, pid, comm=COMM):
    blob = payload(INIT, comm, ranks, rank, 0, form="<QIII4x")
    return range_(0, 9, "ncclCommInitRank", pid=pid, tid=pid, domain=1, blob=blob)


def both(tmp_path, *ranges):
    """Ranks of two processes, and what says so."""
    kernels = [kernel(50, 60, pid=pid, device=pid - 1) for pid in (1, 2)]
    found = captures(report(tmp_path, ranges, kernels, []))
    return [(c.rank, c.rank_from) for c in found]


def test_ranks_are_those_of_the_largest_communicator(tmp_path):
    """Small ones count from 0 in every group."""
    ranges = (made(8, 64, 1), made(9, 64, 2), made(0, 2, 1, OTHER), made(1, 2, 2, OTHER))
    why = "NCCL communicator of 64 ranks"
    assert both(tmp_path, *ranges) == [(8, why), (9, why)]


@pytest.mark.parametrize(
    "ranges",
    [
        (made(8, 64, 1), made(8, 64, 2)),
        (made(8, 64, 1), made(1, 2, 2)),
        (made(8, 64, 1),),
        (made(70, 64, 1), made(9, 64, 2)),
    ],
    ids=["one rank twice", "different sizes", "one process only", "beyond its size"],
)
def test_communicators_that_do_not_tell_ranks_apart_are_not_believed(tmp_path, ranges):
    """Then the devices order the processes."""
    why = "one process per device"
    assert both(tmp_path, *ranges) == [(0, why), (1, why)]
