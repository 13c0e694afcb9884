"""Raw captures with files cut, missing or full of something else: the rest is always read."""

import random
from dataclasses import replace

import numpy as np
import pytest
from ascend_raw_made import crashed, job

from traceconv import TraceconvError
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Layer
from traceconv.io.sources import sources
from traceconv.passes import compose
from traceconv.readers.ascend.raw import reader as ascend_raw

MADE = {"crashed": crashed, "job": job}
RECORDS = [
    (case, name) for case, make in MADE.items() for name in make().files if ".slice_" in name
]
UNREAD = ("hbm.data", "AICPUMI", ".done")
RECORDS = [
    (case, name)
    for case, make in MADE.items()
    for name in make().files
    if ".slice_" in name and not any(word in name for word in UNREAD)
]


def read(folder):
    """The trace of the one capture below a folder, and the issues of finding and reading it."""
    (source,) = sources([str(folder)])
    issues = Issues()
    (capture,) = ascend_raw.READER.find(source, source.names(), issues)
    if capture.rank is None:  # the file that says so may be missing
        capture = replace(capture, rank=0)
    build = TraceBuilder(capture)
    ascend_raw.READER.read(capture, build)
    trace = build.finish()
    trace.issues.extend(issues)
    return trace


def rows(trace, *layers):
    """Rows of lanes as (start, duration, name, arguments)."""
    events = trace.events.take(trace.rows_of(*layers))
    names = [trace.strings[i] for i in events.name.tolist()]
    said = [trace.args[i] for i in events.args.tolist()]
    return list(zip(events.start_ns.tolist(), events.dur_ns.tolist(), names, said, strict=True))


def account(trace):
    """Issues by code and file."""
    return {(i.code, i.file.rpartition("/")[2]): i.count for i in trace.issues}


def doubts(trace):
    """Losses and doubts, by code."""
    return {i.code for i in trace.issues if i.severity != "info"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folders = {case: make().write(tmp_path_factory.mktemp(case)) for case, make in MADE.items()}
    return {case: read(folder) for case, folder in folders.items()}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("case", "name"), RECORDS, ids=[name for _, name in RECORDS])
@pytest.mark.parametrize("sevenths", [1, 4, 6])
def test_a_cut_is_said(tmp_path, whole, case, name, sevenths):
    """A file cut anywhere leaves a trace and an account that is not the whole one's."""
    tree = MADE[case]()
    content = tree.files[name]
    tree.files[name] = content[: len(content) * sevenths // 7]
    trace = read(tree.write(tmp_path))
    everything = rows(trace, *Layer) != rows(whole[case], *Layer)
    assert everything or account(trace) != account(whole[case])


@pytest.mark.parametrize(("kind", "kept"), [
    ("stars_soc", (Layer.STEP, Layer.RUNTIME, Layer.COUNTER)),
    ("ts_track", (Layer.RUNTIME, Layer.COUNTER, Layer.COMM)),
    ("/host/data/", (Layer.STEP, Layer.COUNTER)),
    ("hccl_info", (Layer.STEP, Layer.RUNTIME, Layer.COUNTER)),
    ("lpmFreqConv", (Layer.STEP, Layer.RUNTIME, Layer.DEVICE, Layer.COMM)),
])  # fmt: skip
def test_without_a_kind_the_others_are_as_they_were(tmp_path, whole, kind, kept):
    """Every kind of record stands by itself."""
    tree = crashed()
    tree.files = {name: content for name, content in tree.files.items() if kind not in name}
    trace = read(tree.write(tmp_path))
    for layer in kept:
        assert rows(trace, layer) == rows(whole["crashed"], layer)


def test_without_the_host_the_device_still_computes(tmp_path):
    """No names: tasks of compute engines count as computing, under the names of their kinds."""
    tree = crashed()
    tree.files = {name: content for name, content in tree.files.items() if "/host/" not in name}
    names = {name for *_, name, _ in rows(read(tree.write(tmp_path)), Layer.DEVICE)}
    assert {"AI_CORE", "NOTIFY_WAIT", "SDMA", "AIV", "MIX_AIC"} < names


@pytest.mark.parametrize("case", MADE)
def test_any_file_may_be_missing(tmp_path, case):
    """Without any one of them there is a trace, and all views of it."""
    for number, name in enumerate(MADE[case]().files):
        tree = MADE[case]()
        del tree.files[name]
        trace = read(tree.write(tmp_path / str(number)))
        trace = replace(trace, capture=replace(trace.capture, rank=0))
        for one in compose("detail"):
            trace = one(trace)
        assert len(trace.events) > 0, name


@pytest.mark.parametrize("case", MADE)
@pytest.mark.parametrize("seed", range(12))
def test_damaged_bytes_never_end_in_a_fault(tmp_path, case, seed):
    """Bytes changed anywhere, in all files: a trace, or an error of ours."""
    dice = random.Random(seed)
    tree = MADE[case]()
    for name, content in tree.files.items():
        damaged = bytearray(content)
        for _ in range(dice.randrange(1, 12)):
            damaged[dice.randrange(len(damaged))] = dice.choice((0, 1, 127, 128, 255))
        tree.files[name] = bytes(damaged)
    try:
        trace = read(tree.write(tmp_path))
    except TraceconvError:
        return
    assert int(trace.events.dur_ns.min(initial=0)) >= 0
    assert np.isin(trace.events.track, np.arange(len(trace.tracks))).all()


@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\xd3"])
def test_files_of_one_byte_value(tmp_path, fill):
    """Files a broken disk left: nothing in them, and nothing but issues of them."""
    tree = crashed()
    for name, content in tree.files.items():
        if ".slice_" in name and not name.endswith(".done"):
            tree.files[name] = fill * len(content)
    trace = read(tree.write(tmp_path))
    assert rows(trace, Layer.STEP, Layer.DEVICE, Layer.COMM) == []
    assert "malformed-record" in doubts(trace)
