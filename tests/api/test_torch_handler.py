"""The handler of ``torch.profiler`` writes traces, and rank 0 says what they show."""

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from paths import ROOT

import traceconv

CASE = ROOT / "golden/kineto/gloo_on_cpus/input"


class Profile:
    """Exports a window as ``torch.profiler.profile`` does."""

    def __init__(self, rank, **changed):
        self.content = json.loads(next(CASE.glob(f"rank{rank}.*")).read_text())
        for key, value in changed.items():
            if value is None:
                del self.content[key]

    def export_chrome_trace(self, path):
        Path(path).write_text(json.dumps(self.content))


@pytest.fixture
def as_rank(monkeypatch):
    """Makes this process a rank of two, as torchrun says."""
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    return lambda rank: monkeypatch.setenv("RANK", str(rank))


def handlers(folder, **given):
    """Those of two ranks, and what each says."""
    said = [], []
    return [traceconv.torch_handler(folder, say=each.append, **given) for each in said], said


def test_rank_0_says_which_rank_is_slow(tmp_path, as_rank):
    """When both ranks have written, the window is merged and judged, and each window apart."""
    every, said = handlers(tmp_path / "prof")
    for window in range(2):
        for rank in (1, 0):
            as_rank(rank)
            every[rank](Profile(rank))
        text = "\n".join(said[0])
        assert text.count("Rank 1 costs 294 µs per step") == 1
        assert said[1] == []
        merged = sorted((tmp_path / "prof").glob("merged.*.pftrace"))
        assert len(merged) == window + 1
        said[0].clear()
    assert [report.ranks for report in every[0].reports] == [(0, 1), (0, 1)]
    names = sorted(path.name.split(".")[0] for path in (tmp_path / "prof").glob("rank*"))
    assert names == ["rank0", "rank0", "rank1", "rank1"]


def test_a_trace_names_its_rank_and_host(tmp_path, as_rank):
    """Where PyTorch does not state them, the handler does; nothing else changes."""
    as_rank(1)
    profile = Profile(1, distributedInfo=None, host_name=None)
    traceconv.torch_handler(tmp_path)(profile)
    (path,) = tmp_path.glob("rank1.*.pt.trace.json.gz")
    (capture,) = traceconv.inspect(tmp_path).captures
    assert (capture.rank, capture.world_size, capture.rank_from) == (1, 2, "distributedInfo")
    written = json.loads(gzip.decompress(path.read_bytes()))
    assert written.pop("host_name") == capture.host != ""
    assert written.pop("distributedInfo") == {"rank": 1, "world_size": 2}
    assert written == profile.content


def test_a_rank_that_is_missing_is_named(tmp_path, as_rank):
    """Rank 0 waits no longer than it may, and judges the others."""
    every, said = handlers(tmp_path, wait_s=0)
    as_rank(0)
    every[0](Profile(0))
    first = said[0][0]
    assert "no trace of rank 1" in first and "the verdict is without it" in first
    assert every[0].reports[0].ranks == (0,)


def test_files_of_an_earlier_run_are_not_of_this_window(tmp_path, as_rank):
    """Files that were in the folder before are left alone."""
    as_rank(1)
    traceconv.torch_handler(tmp_path)(Profile(1))
    every, said = handlers(tmp_path, wait_s=0)
    as_rank(0)
    every[0](Profile(0))
    assert "no trace of rank 1" in said[0][0]


def test_a_failure_does_not_end_training(tmp_path, as_rank):
    """A full disk, or a trace that cannot be read, is reported in a line."""

    class Full:
        def export_chrome_trace(self, path):
            raise OSError("no space left on device")

    class Broken:
        def export_chrome_trace(self, path):
            Path(path).write_text("{}")

    every, said = handlers(tmp_path, wait_s=0)
    as_rank(0)
    every[0](Full())
    assert "the trace of rank 0 was not written: no space left on device" in said[0]
    every[0](Broken())
    assert "no verdict" in said[0][-1]


def test_ranks_tell_their_files_in_the_store(tmp_path, monkeypatch):
    """With ``torch.distributed`` no collective is run: names go through its store."""

    class Store(dict):
        """Of one window: all ranks here are one process, which counts on."""

        def set(self, key, value):
            self[key[-1]] = value.encode()

        def get(self, key):
            return self[key[-1]]

        def wait(self, keys, timeout):
            if not {key[-1] for key in keys} <= self.keys():
                raise RuntimeError("timeout")

    store, rank = Store(), [1]
    distributed = types.ModuleType("torch.distributed")
    distributed.is_available = distributed.is_initialized = lambda: True
    distributed.get_rank, distributed.get_world_size = lambda: rank[0], lambda: 3
    inner = types.ModuleType("torch.distributed.distributed_c10d")
    inner._get_default_store = lambda: store
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    monkeypatch.setitem(sys.modules, inner.__name__, inner)
    said = []
    traceconv.torch_handler(tmp_path)(Profile(1))
    rank[0] = 0
    traceconv.torch_handler(tmp_path, wait_s=0.2, say=said.append)(Profile(0))
    assert "no trace of rank 2" in said[0]
    assert any("Rank 1 costs" in line for line in said)


@pytest.mark.parametrize(("folder", "given"), [("", {}), ("s3://a/b", {}), ("x", {"wait_s": -1})])
def test_arguments_are_checked_at_once(folder, given):
    """Before a training run begins, not at its first window."""
    with pytest.raises(traceconv.OptionError):
        traceconv.torch_handler(folder, **given)


def test_torch_is_not_imported_before_it_is_used(tmp_path):
    """Making a handler imports no PyTorch, and neither does the package."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    code = "import traceconv; traceconv.torch_handler('prof'); traceconv.trainer_callback"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_the_callback_profiles_the_steps_of_a_trainer(tmp_path, monkeypatch):
    """It starts with training, counts steps, and stops with it."""
    calls = []
    transformers, profiler = types.ModuleType("transformers"), types.ModuleType("torch.profiler")
    transformers.TrainerCallback = object
    profiler.schedule = lambda **given: given

    class Profiler:
        def __init__(self, **given):
            calls.append(given)

        def start(self):
            calls.append("start")

        def step(self):
            calls.append("step")

        def stop(self):
            calls.append("stop")

    profiler.profile = Profiler
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    callback = traceconv.trainer_callback(tmp_path, active=2, record_shapes=True)
    callback.on_train_begin(None, None, None)
    callback.on_step_end(None, None, None)
    callback.on_train_end(None, None, None)
    given = calls.pop(0)
    assert given["schedule"] == {"wait": 1, "warmup": 1, "active": 2, "repeat": 1}
    assert given["record_shapes"] and calls == ["start", "step", "stop"]


def test_the_extra_is_named(tmp_path, monkeypatch):
    """Without transformers the message says what to install."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(traceconv.MissingExtraError, match=r"'\.\[trainer\]'"):
        traceconv.trainer_callback(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch")
def test_a_real_job_on_cpus(tmp_path):
    """Two processes train with Gloo; the one that sleeps 200 ms in every step is named, unless the
    machine is too busy for a verdict."""
    program, folder = ROOT / "examples" / "slow_rank.py", tmp_path / "prof"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, str(program), str(folder), "--slow", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    job = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    said = job.stderr
    assert job.returncode == 0 and said.count("traceconv: wrote") == 2
    named = len(re.findall("^traceconv: .* costs .* per step", said, re.MULTILINE))
    assert named == said.count("Rank 1 costs ") == 2 - said.count("no verdict: replay")
