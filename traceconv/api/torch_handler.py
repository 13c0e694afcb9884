"""Traces of ``torch.profiler`` as they are recorded, and the verdict on each recording window.

``torch_handler`` is called by the profiler of each rank when a window ends. Ranks tell rank 0 of
their file in the key-value store of ``torch.distributed``, without a collective: a rank that does
not profile delays the others by the limit at most. Without ``torch.distributed``, rank 0
looks for the files. PyTorch is imported by nothing here but the call of a handler.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import orjson

from traceconv.api.merge import merge
from traceconv.core.errors import OptionError, TraceconvError
from traceconv.core.frames import extra
from traceconv.core.patterns import natural
from traceconv.core.rank_ranges import format_ranges
from traceconv.io.atomic import replacing
from traceconv.io.streams import Deflating
from traceconv.merging.run_report import Report
from traceconv.options import values

SUFFIX = ".pt.trace.json.gz"

BLOCK_BYTES = 4 << 20
"""Size of the blocks that are compressed. If PyTorch states rank and host, then in the first."""

_GZIP = 31
"""Window bits of zlib that mean a gzip header."""

POLL_S = 0.1
"""Time between two looks for the files of other ranks."""

_WINDOWS = itertools.count()
"""Numbers the windows of this process, so that no two have the same keys in the store."""


class Profile(Protocol):
    """The part of ``torch.profiler.profile`` that a handler uses."""

    def export_chrome_trace(self, path: str) -> Any:
        """Write the window as trace-event JSON."""


@dataclass(frozen=True)
class _Job:
    """The place of this process among the ranks.

    Attributes:
        store: of ``torch.distributed``; None without it.
    """

    rank: int = 0
    ranks: int = 1
    store: Any = None

    @classmethod
    def here(cls) -> _Job:
        """As ``torch.distributed`` says, or the environment that ``torchrun`` sets."""
        with suppress(ImportError, AttributeError):  # builds and versions without it
            distributed = import_module("torch.distributed")
            if distributed.is_available() and distributed.is_initialized():
                inner = import_module("torch.distributed.distributed_c10d")
                store = inner._get_default_store()
                return cls(distributed.get_rank(), distributed.get_world_size(), store)
        rank, ranks = (natural(os.environ.get(name, "")) for name in ("RANK", "WORLD_SIZE"))
        if 0 <= rank < ranks:
            return cls(rank, ranks)
        return cls()


@dataclass
class TorchHandler:
    """What :func:`torch_handler` returns; the profiler calls it.

    Attributes:
        folder: of the traces.
        wait_s: the longest that rank 0 waits for the files of the other ranks.
        judge:  whether rank 0 merges and judges.
        say:    called with each line of the verdict.
        reports: on rank 0, the report of each window that was merged.
    """

    folder: Path
    wait_s: float
    judge: bool
    say: Callable[[str], None]
    reports: list[Report] = field(default_factory=list)
    _earlier: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._earlier = frozenset(path.name for path in self.folder.glob(f"rank*{SUFFIX}"))

    def __call__(self, profile: Profile) -> None:
        """Write the trace of this rank; on rank 0 also merge and judge, if the job allows it.

        A failure to write, merge or judge is said in a line, and training goes on.
        """
        job, window = _Job.here(), next(_WINDOWS)
        name = f"rank{job.rank}.{time.time_ns()}{SUFFIX}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _export(profile, self.folder / name, job)
        except (OSError, TraceconvError) as e:
            self.say(f"the trace of rank {job.rank} was not written: {e}")
            name = ""
        if job.store is not None:
            job.store.set(_key(window, job.rank), name)
        if self.judge and job.rank == 0:
            self._merge_window(job, window, name)

    def _merge_window(self, job: _Job, window: int, own_file: str) -> None:
        deadline = time.monotonic() + self.wait_s
        if job.store is None:
            files = self._files_by_number(job, own_file, deadline)
        else:
            files = self._files_from_store(job, window, deadline)
        missing = sorted(set(range(job.ranks)) - files.keys())
        if missing:
            plural = "s" * (len(missing) > 1)
            self.say(
                f"window {window}: no trace of rank{plural} {format_ranges(missing)} in "
                f"{self.folder} after {self.wait_s:g} s; the verdict is without "
                f"{'them' if plural else 'it'}"
            )
        if not files:
            return
        out = (
            self.folder / f"merged.{own_file.split('.')[1] if own_file else time.time_ns()}.pftrace"
        )
        try:
            report = merge([self.folder / name for name in files.values()], out=out, analyse=True)
        except TraceconvError as e:
            self.say(f"window {window}: no verdict: {e}")
            return
        self.reports.append(report)
        for line in report.lines():
            self.say(line)
        self.say(f"wrote {out}")

    def _files_from_store(self, job: _Job, window: int, deadline: float) -> dict[int, str]:
        """The files that ranks name in the store, once they are visible here."""
        files: dict[int, str] = {}
        for rank in range(job.ranks):
            remaining_s = max(deadline - time.monotonic(), 0.001)
            try:
                job.store.wait([_key(window, rank)], timedelta(seconds=remaining_s))
                name = job.store.get(_key(window, rank)).decode()
            except RuntimeError:  # a DistStoreError: the time is over
                continue
            while name and not (is_visible := (self.folder / name).exists()):
                if time.monotonic() > deadline:  # the folder is not shared with its host
                    break
                time.sleep(POLL_S)
            if name and is_visible:
                files[rank] = name
        return files

    def _files_by_number(self, job: _Job, own_file: str, deadline: float) -> dict[int, str]:
        """Without a store: of each rank the file of the same number as those of this rank."""
        while True:
            files_by_rank: dict[int, list[str]] = {}
            for path in sorted(self.folder.glob(f"rank*{SUFFIX}")):
                match = re.match(r"rank(\d+)\.\d+\.", path.name)
                if match and path.name not in self._earlier:
                    files_by_rank.setdefault(int(match[1]), []).append(path.name)
            number = (
                files_by_rank[job.rank].index(own_file)
                if own_file
                else len(files_by_rank.get(job.rank, ()))
            )
            files = {
                rank: names[number]
                for rank, names in sorted(files_by_rank.items())
                if rank < job.ranks and number < len(names)
            }
            if len(files) == job.ranks or time.monotonic() > deadline:
                return files
            time.sleep(POLL_S)


def _key(window: int, rank: int) -> str:
    return f"traceconv/{window}/{rank}"


def _export(profile: Profile, path: Path, job: _Job) -> None:
    """Write the window, compressed, at once under its name. Its head says which rank of how many
    it is, and of which host, where PyTorch does not."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(plain))
        with plain.open("rb") as source, replacing(path) as target:
            packer = Deflating(_GZIP)
            block = _with_identity(source.read(BLOCK_BYTES), job)
            while block:
                target.write(packer.add(block))
                block = source.read(BLOCK_BYTES)
            target.write(packer.end())


def _with_identity(head: bytes, job: _Job) -> bytes:
    before, brace, members = head.partition(b"{")
    header = members.partition(b'"traceEvents"')[0]
    if not brace or before.strip():
        return head
    identity = {
        "distributedInfo": {"rank": job.rank, "world_size": job.ranks},
        "host_name": socket.gethostname(),
    }
    lacking = {key: value for key, value in identity.items() if f'"{key}"'.encode() not in header}
    if not lacking:
        return head
    comma = b"" if members.lstrip().startswith(b"}") else b","
    return before + orjson.dumps(lacking)[:-1] + comma + members


def _to_stderr(line: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"traceconv: {line}\n")
        sys.stderr.flush()


def torch_handler(
    folder: values.AnyPath,
    *,
    wait_s: float = 120.0,
    judge: bool = True,
    say: Callable[[str], None] | None = None,
) -> TorchHandler:
    """A handler for ``torch.profiler.profile(on_trace_ready=...)``.

    Each rank writes ``rank<N>.<time>.pt.trace.json.gz`` into ``folder``. When all ranks have
    written a window, rank 0 merges it into ``merged.<time>.pftrace`` there and says what its steps
    lose and which rank delays the others. Rank 0 does so before it trains on, so the other ranks
    wait for it in their next collective; pass ``judge=False`` for jobs where that takes too long.

    Args:
        folder: of the traces; shared between the hosts of the job.
        wait_s: the longest that rank 0 waits for the other ranks, seconds. The verdict is without
            those that are missing then.
        judge:  False only writes the traces.
        say:    called with each line of the verdict; None writes to standard error.

    Raises:
        OptionError: an argument is not understood.
    """
    path = values.path(folder, "folder")
    if not path or "://" in path:
        raise OptionError(f"{folder!r} is not a local folder", "folder")
    if not wait_s >= 0:
        raise OptionError(f"{wait_s!r} is not a number of seconds", "wait_s")
    return TorchHandler(Path(path), wait_s, judge, say or _to_stderr)


def trainer_callback(
    folder: values.AnyPath,
    *,
    wait: int = 1,
    warmup: int = 1,
    active: int = 5,
    repeat: int = 1,
    wait_s: float = 120.0,
    judge: bool = True,
    say: Callable[[str], None] | None = None,
    **profile: Any,
) -> Any:
    """A callback for the ``Trainer`` of Hugging Face that profiles a few steps by
    :func:`torch_handler`.

    Args:
        folder, wait_s, judge, say: as of :func:`torch_handler`.
        wait, warmup, active: steps that are skipped, recorded and thrown away, and recorded, as of
            ``torch.profiler.schedule``.
        repeat: how many windows; 0 for one after the other until training ends.
        profile: further arguments of ``torch.profiler.profile``, such as ``record_shapes``.

    Returns:
        A ``transformers.TrainerCallback``, for ``Trainer(callbacks=[...])``.

    Raises:
        MissingExtraError: ``transformers`` is not installed.
        OptionError: an argument is not understood.
    """
    base = extra("transformers", "trainer").TrainerCallback
    profiler = import_module("torch.profiler")
    handler = torch_handler(folder, wait_s=wait_s, judge=judge, say=say)
    schedule = profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)

    class ProfilingCallback(base):  # type: ignore[misc, valid-type]
        """Profiles steps of a training run."""

        running: Any = None

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.running = profiler.profile(schedule=schedule, on_trace_ready=handler, **profile)
            self.running.start()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if self.running is not None:
                self.running.step()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            if self.running is not None:
                self.running.stop()
                self.running = None

    return ProfilingCallback()


__all__ = ["Profile", "TorchHandler", "torch_handler", "trainer_callback"]
