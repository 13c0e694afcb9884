"""``python -m fuzz coverage``: atheris looks for inputs that reach new code, reader by reader.

An input is a byte that chooses one of the files of the golden cases, and the content it gets; the
corpus begins with these files as they are. Every target runs in a process of its own for its share
of the time, under libFuzzer's limits of memory and time, and its inputs stay in a folder, so that
the next run goes on where this one stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import pkgutil
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if "--target" in sys.argv:
    import atheris

    with atheris.instrument_imports(include=["traceconv.readers", "traceconv.passes"]):
        import traceconv.passes
        import traceconv.readers

        for _package in (traceconv.readers, traceconv.passes):  # many are imported late
            for _one in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
                importlib.import_module(_one.name)

from fuzz.pipeline import examined
from fuzz.seeds import ROOT, golden

MEMORY_MB = 2048
"""Memory one input may take; a target that takes it with all it has seen is started again."""

HANG_S = 10
"""An input that takes longer is a finding."""

MAX_FINDINGS = 10
"""After so many, a reader is left alone."""

_COVER = re.compile(r"cov: (\d+)")
_RUNS = re.compile(r"^#(\d+)\s", re.MULTILINE)
_OUT_OF_MEMORY = re.compile(r"Test unit written to (\S*/oom-[0-9a-f]+)")


def main(given: list[str]) -> int:
    """Parse arguments, run every target, print the table; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz coverage", description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="for all targets together")
    parser.add_argument("--reader", action="append", default=[], help="these only")
    parser.add_argument("--corpus", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--replay", type=Path, help="one input that was found, of --reader")
    parser.add_argument("--target", default="", help=argparse.SUPPRESS)
    args, _ = parser.parse_known_args(given)
    if args.replay:
        return _replay(args.reader[0], args.replay)
    if args.target:
        return _target(args.target, given)
    readers = args.reader or sorted({p.parents[1].name for p in ROOT.glob("golden/*/*/case.toml")})
    share = max(1, args.seconds // len(readers))
    print(f"{'reader':>16}  {'inputs':>9}  {'coverage':>8}  {'seconds':>7}  findings")
    return max([_run(reader, share, args.corpus) for reader in readers])


def _run(reader: str, seconds: int, corpus: Path) -> int:
    """Fuzz one reader; libFuzzer ends at a finding, and is started again for the rest of time."""
    found, kept = corpus / reader / "found", corpus / reader / "corpus"
    for folder in (found, kept):
        folder.mkdir(parents=True, exist_ok=True)
    begun, inputs, cover, findings = time.monotonic(), 0, 0, []
    while (left := seconds - (time.monotonic() - begun)) > 1 and len(findings) < MAX_FINDINGS:
        limits = (
            f"-max_total_time={int(left)}",
            f"-timeout={HANG_S}",
            f"-rss_limit_mb={MEMORY_MB}",
        )
        paths = (f"-artifact_prefix={found}/", str(kept))
        command = [sys.executable, "-m", "fuzz", "coverage", "--target", reader]
        done = subprocess.run(
            [*command, *limits, "-max_len=131072", *paths],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        runs = _RUNS.findall(done.stderr)
        inputs += int(runs[-1]) if runs else 0
        cover = max([cover, *map(int, _COVER.findall(done.stderr))])
        if done.returncode:
            said = done.stdout + done.stderr
            if (alone := _OUT_OF_MEMORY.search(said)) and _fits(reader, Path(alone[1])):
                continue  # the fuzzer keeps what it needs of every input, for hours
            findings.append(said[said.find("Uncaught Python") :][:4000] + said[-300:])
    spent = time.monotonic() - begun
    print(f"{reader:>16}  {inputs:>9}  {cover:>8}  {spent:>7.0f}  {len(findings)}", flush=True)
    for finding in findings:
        print(finding, flush=True)
    return int(bool(findings))


class _Files:
    """What an input is put into: the files of the golden cases of a reader, by number."""

    def __init__(self, reader: str, place: Path) -> None:
        self._scratch = place
        seeds = golden(place / "golden", reader)
        self.each = [(seed, file, file.read_bytes()) for seed in seeds for file in seed.files][:256]

    def examine(self, data: bytes) -> None:
        """Take one input through the pipeline."""
        if not data:
            return
        seed, file, original = self.each[data[0] % len(self.each)]
        file.write_bytes(data[1:])
        try:
            examined(seed.path, self._scratch)
        finally:
            file.write_bytes(original)


def _fits(reader: str, path: Path) -> bool:
    """Whether an input on its own, in a process of its own, stays within the memory."""
    again = [sys.executable, "-m", "fuzz", "coverage", "--reader", reader, "--replay", str(path)]
    done = subprocess.run(again, capture_output=True, check=False)
    if not done.returncode:
        path.unlink()
    return not done.returncode


def _replay(reader: str, path: Path) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        _Files(reader, Path(place)).examine(path.read_bytes())
    return 0


def _target(reader: str, given: list[str]) -> int:
    """The process libFuzzer takes over; it does not come back."""
    import atheris

    os.environ["TRACECONV_NATIVE"] = "0"  # coverage sees Python only
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        files = _Files(reader, Path(place))
        for i, (_, _, data) in enumerate(files.each):
            name = hashlib.sha1(data + bytes([i])).hexdigest()
            (Path(given[-1]) / name).write_bytes(bytes([i]) + data)
        words = [word for word in given if word[:2] != "--" and word != reader]
        atheris.Setup([sys.argv[0], *words], files.examine)
        atheris.Fuzz()
    return 0
