"""What goes wrong around a run, and what has to hold whatever does.

``python -m tests.faults`` prints a table: kind of fault x command x times tried, survived. A run is
a forked child of a process that has everything imported, so that it takes a tenth of a second. What
it does to files and folders is counted by an audit hook, and the fault comes at one of these
moments: so each state that can be on the disk between two acts is tried, not a moment of luck.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import traceconv
from tests.support.golden_cases import case_folder
from traceconv import TraceconvError
from traceconv.api import watch as watching
from traceconv.cli import run as cli

ROOT = Path(__file__).parents[2]

ACTS = frozenset(
    {
        *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"),
        *("shutil.rmtree", "tempfile.mkdtemp", "tempfile.mkstemp", "fcntl.flock", "os.scandir"),
    }
)
"""Audit events that are about files."""

PHASES = (
    ("io/atomic.py:_sweep", "sweep"),
    ("io/atomic.py:settle", "rename"),
    ("io/atomic.py:finish", "sync"),
    ("io/atomic.py:Upload", "upload"),
    ("merging/shards.py", "shard"),
    ("writers/bundle.py", "bundle"),
    ("report/", "report"),
    ("run/spill.py", "spill"),
    ("store/rank_file.py", "spill"),
    ("alignment/", "align"),
    ("writers/size_limit/split.py", "split"),
    ("readers/", "read"),
    ("io/sources.py", "read"),
    ("merging/copying.py", "copy"),
    ("writers/", "encode"),
    ("run/executor.py", "temporary"),
    ("cli/", "report"),
)
"""What a run is at, by the innermost place on its stack that is named here."""

REFUSED, SURPRISED = 3, 99
"""How a child ends: an error of ours; any other one."""


@dataclass(frozen=True)
class Command:
    """A run.

    Attributes:
        act:     what is done in a folder ``place``, with captures in ``place/in``.
        outputs: paths below ``place`` that it writes.
        swept:   whether what a killed run leaves is removed by the next one.
    """

    name: str
    act: Callable[[Path], object]
    outputs: tuple[str, ...]
    swept: bool = True


def _merge(place: Path, out: str, **options: object) -> object:
    return traceconv.merge(
        str(place / "in"), out=str(place / out), force=True, align="none", **options
    )


def _report(place: Path) -> object:
    os.chdir(place)
    return _checked(["diagnose", "in", "-o", "report.html", "--force"])


def _salvage(place: Path) -> object:
    os.chdir(place)
    name = next(Path("in").rglob("trace_view.json"))
    return _checked(["convert", str(name), "--salvage", "-f", "-o", "saved.json"])


def _checked(words: list[str]) -> int:
    code = cli(words)
    if code not in (0, 1):
        raise TraceconvError(f"exit {code}")
    return code


def _packed(place: Path) -> None:
    traceconv.pack(str(place / "in"), out=str(place / "run.tcz"), force=True, views=True, jobs=1)


def _watched(place: Path) -> None:
    watching.SETTLED_S = watching.POLL_S = 0.0
    (place / "traces").mkdir(exist_ok=True)
    for window in traceconv.watch(place / "in", once=True, out=str(place / "traces"), align="none"):
        if window.error:
            raise TraceconvError(window.error)


def _joined(place: Path) -> object:
    shards = [str(place / f"{i}.shard") for i in range(2)]
    for i in range(2):
        _merge(place, f"{i}.shard", mode="summary", jobs=1, shard=(i, 2))
    return traceconv.join(*shards, out=str(place / "joined.pftrace"), force=True)


PARTS = tuple(f"split-{i:03}.json" for i in range(1, 5))

COMMANDS = (
    Command("merge", lambda p: _merge(p, "t.pftrace", mode="detail", jobs=1), ("t.pftrace",)),
    Command("copy", lambda p: _merge(p, "c.json.gz", mode="source", jobs=1), ("c.json.gz",)),
    Command(
        "split",
        lambda p: _merge(p, "split.json", mode="detail", jobs=1, over_limit="split",
                         limit=120_000),
        PARTS,
    ),
    Command("bundle", lambda p: _merge(p, "b.tar", mode="detail", jobs=1), ("b.tar",)),
    Command("shard, join", _joined, ("0.shard", "1.shard", "joined.pftrace")),
    Command("pack", _packed, ("run.tcz",)),
    Command("watch", _watched, ("traces/window-00001.pftrace",)),
    Command("report", _report, ("report.html",)),
    Command("salvage", _salvage, ("saved.json", "saved.json.losses.json")),
    Command(
        "upload",
        lambda p: traceconv.merge(
            str(p / "in"), out=(p / "u.json").as_uri(), force=True, align="none", mode="summary"
        ),
        ("u.json",),
        swept=False,
    ),
)  # fmt: skip


@dataclass
class Row:
    """A line of the table."""

    tried: int = 0
    survived: int = 0
    why: list[str] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)

    def take(self, complaint: str, phase: str = "") -> None:
        """One more try; "" is a survival."""
        self.tried += 1
        self.survived += not complaint
        if complaint:
            self.why.append(complaint)
        if phase:
            self.phases[phase] = self.phases.get(phase, 0) + 1


# -- a place to run in, and children ------------------------------------------------------------


@contextlib.contextmanager
def prepared() -> Iterator[Path]:
    """A folder with two ranks below ``in``, and with a temporary folder of its own."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        place = Path(name)
        shutil.copytree(case_folder(ROOT / "golden/trace_view/demo") / "input", place / "in")
        (place / "tmp").mkdir()
        before = os.environ.get("TRACECONV_TMPDIR")
        os.environ["TRACECONV_TMPDIR"] = str(place / "tmp")
        try:
            yield place
        finally:
            os.environ.pop("TRACECONV_TMPDIR")
            if before is not None:
                os.environ["TRACECONV_TMPDIR"] = before


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code or, negative, its signal; what it did; what it said."""

    code: int
    acts: int
    phase: str
    said: str


def forked(
    act: Callable[[], object],
    *,
    at: int = -1,
    fault: Callable[[], None] = lambda: None,
    before: Callable[[], object] = lambda: None,
) -> Ended:
    """Run ``act`` in a child; ``fault`` comes before its ``at``-th act on a file."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        _child(act, at, fault, before, tell)
    os.close(tell)
    with os.fdopen(told, "rb") as reader:
        said = reader.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    head, _, rest = said.partition("\n")
    acts, _, phase = head.partition(" ")
    if rest.startswith("end "):
        acts, _, rest = rest.removeprefix("end ").partition("\n")
    return Ended(os.waitstatus_to_exitcode(status), int(acts or 0), phase, rest)


def _child(
    act: Callable[[], object], at: int, fault: Callable[[], None], before: Callable[[], object],
    tell: int,
) -> None:  # fmt: skip
    code, count, armed = 0, 0, True

    def hook(event: str, _args: object) -> None:
        nonlocal count, armed
        if not armed or event not in ACTS:
            return
        count += 1
        if count == at:
            armed = False
            os.write(tell, f"{count} {_phase()}\n".encode())
            fault()
            armed = True

    try:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        before()
        sys.addaudithook(hook)
        act()
    except TraceconvError as e:
        code = REFUSED
        message = str(e)
    except MemoryError as e:
        code, message = REFUSED, f"MemoryError {e}"
    except BaseException as e:  # noqa: BLE001 - to be reported, whatever it is
        where = traceback.extract_tb(e.__traceback__)[-6:]
        places = [f"{Path(f.filename).name}:{f.lineno}" for f in where]
        code, message = SURPRISED, f"{type(e).__name__}: {e} {' '.join(places)}"
    else:
        message = ""
    armed = False
    with contextlib.suppress(OSError):
        os.write(tell, b"" if 0 < at <= count else b"0 -\n")
        os.write(tell, f"end {count}\n{message[:500]}".encode())
    os._exit(code)


def _phase() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        place = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
        for part, name in PHASES:
            if f"traceconv/{part.partition(':')[0]}" in place and part.partition(":")[2] in place:
                return name
        frame = frame.f_back
    return "other"


def content(path: Path) -> object:
    """A file's bytes, or a folder's by name; None if nothing is there."""
    if path.is_dir():
        return {p.name: p.read_bytes() for p in sorted(path.iterdir())}
    return path.read_bytes() if path.exists() else None


def _outputs(command: Command, place: Path) -> dict[str, object]:
    return {name: content(place / name) for name in command.outputs if (place / name).exists()}


def _clear(command: Command, place: Path) -> None:
    for path in place.iterdir():
        if path.name not in ("in", "tmp"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _left(place: Path) -> list[str]:
    """What is there that no finished run leaves."""
    here = [p.name for p in place.iterdir() if p.name.endswith(".part")]
    return here + [p.name for p in (place / "tmp").iterdir()]


class Reference:
    """What a command writes when nothing goes wrong, and how many acts that takes."""

    def __init__(self, command: Command, place: Path) -> None:
        self.command, self.place = command, place
        self.inputs = _inputs(place)
        here = Path.cwd()
        command.act(place)  # so that children find everything imported
        os.chdir(here)
        _clear(command, place)
        done = forked(partial(command.act, place))
        assert done.code == 0, done
        self.acts = done.acts
        self.outputs = _outputs(command, place)
        assert self.outputs, command.name

    def faulty(self) -> str:
        """What is wrong with what is there: final names hold the whole output, or nothing."""
        for name, found in _outputs(self.command, self.place).items():
            if found != self.outputs.get(name):
                return f"{name} is neither whole nor absent"
        return "" if _inputs(self.place) == self.inputs else "an input has changed"

    def again(self) -> str:
        """The same run, after whatever has happened."""
        done = forked(partial(self.command.act, self.place))
        if done.code:
            return f"the next run ends with {done.code}: {done.said}"
        if _outputs(self.command, self.place) != self.outputs:
            return "the next run writes something else"
        left = _left(self.place)
        for name in left:
            for path in (self.place / name, self.place / "tmp" / name):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return f"left over: {left[:3]}" if left and self.command.swept else ""


def _inputs(place: Path) -> dict[str, bytes]:
    files = (p for p in (place / "in").rglob("*") if p.is_file())
    return {str(p): p.read_bytes() for p in files}


# -- faults --------------------------------------------------------------------------------------


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(of: Reference, rng: Random, row: Row) -> None:
    """``kill -9`` between any two acts, with an older output there or not."""
    if rng.random() < 0.5:
        _clear(of.command, of.place)
    ended = forked(partial(of.command.act, of.place), at=rng.randint(1, of.acts), fault=_die)
    if ended.code != -signal.SIGKILL:
        row.take(f"ended with {ended.code} before it was killed: {ended.said}")
        return
    row.take(of.faulty() or of.again(), ended.phase)


def _refused(of: Reference, ended: Ended, row: Row) -> None:
    """Succeeded, or refused with a message; nothing broken, nothing left, and it works again."""
    if ended.code not in (0, REFUSED):
        row.take(f"ended with {ended.code} in {ended.phase}: {ended.said}")
        return
    complaint = of.faulty() or (f"left over: {_left(of.place)[:3]}" if _left(of.place) else "")
    row.take(complaint or of.again(), ended.phase)


def limited(what: int, most: Callable[[Random], int]) -> Callable[[Reference, Random, Row], None]:
    """A limit of the system."""

    def fault(of: Reference, rng: Random, row: Row) -> None:
        _clear(of.command, of.place)
        limit = most(rng)
        before = partial(resource.setrlimit, what, (limit, limit))
        _refused(of, forked(partial(of.command.act, of.place), before=before), row)

    return fault


def failing(act: str, number: int) -> Callable[[Reference, Random, Row], None]:
    """A call of the system fails, as on a network file system."""

    def fault(of: Reference, rng: Random, row: Row) -> None:
        _clear(of.command, of.place)
        countdown = rng.randint(0, 2)

        def broken(*args: object, **named: object) -> object:
            nonlocal countdown
            countdown -= 1
            if countdown < 0:
                raise OSError(number, os.strerror(number), str(args[0]))
            return usual(*args, **named)

        usual = getattr(os, act)
        before = partial(setattr, os, act, broken)
        _refused(of, forked(partial(of.command.act, of.place), before=before), row)

    return fault


def gone(of: Reference, rng: Random, row: Row) -> None:
    """The folder of the output is moved away at some moment, as one that is unmounted."""
    _clear(of.command, of.place)
    away = of.place.with_name(of.place.name + "-away")
    at = rng.randint(1, of.acts)
    ended = forked(partial(of.command.act, of.place), at=at, fault=partial(of.place.rename, away))
    if away.exists():
        if of.place.exists():
            shutil.rmtree(of.place)
        away.rename(of.place)
    if ended.code not in (0, REFUSED):
        row.take(f"ended with {ended.code} in {ended.phase}: {ended.said}")
    else:
        row.take(of.faulty() or of.again(), ended.phase)


def _replace(path: Path) -> None:
    fresh = path.with_name("fresh")
    fresh.write_bytes(b'[{"ph":"X","name":"other","pid":1,"tid":1,"ts":1,"dur":1}]')
    fresh.replace(path)


def _shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x" * 9000)


def changed(how: Callable[[Path], None]) -> Callable[[Reference, Random, Row], None]:
    """An input changes while it is read: a whole output, or an error; never a crash."""

    def fault(of: Reference, rng: Random, row: Row) -> None:
        _clear(of.command, of.place)
        path = rng.choice(sorted((of.place / "in").rglob("trace_view.json")))
        was = path.read_bytes()
        at = rng.randint(1, of.acts)
        ended = forked(partial(of.command.act, of.place), at=at, fault=partial(how, path))
        path.unlink()
        path.write_bytes(was)
        if ended.code not in (0, REFUSED):
            row.take(f"ended with {ended.code} in {ended.phase}: {ended.said}")
        else:
            row.take(of.again(), ended.phase)

    return fault


def clock_set_back(of: Reference, rng: Random, row: Row) -> None:
    """The clock of the machine jumps back by a year at any call."""
    usual = time.time
    back = Random(rng.random())

    def before() -> None:
        time.time = lambda: usual() - back.choice((0, 31_536_000))

    _refused(of, forked(partial(of.command.act, of.place), before=before), row)


def full_disk(where: str) -> Callable[[Reference, Random, Row], None]:
    """A file system of few pages, for the output or for temporary files; needs root."""

    def fault(of: Reference, rng: Random, row: Row) -> None:
        place = of.place / where
        place.mkdir(exist_ok=True)
        size = f"size={4 * rng.randint(1, 40)}k"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)],
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return
        inside = Path("..", "small") if where == "small" else None

        def act() -> object:
            if inside is None:
                return of.command.act(of.place)
            (place / "in").symlink_to(of.place / "in")
            return of.command.act(place)

        try:
            ended = forked(act)
            here = [p.name for p in place.iterdir() if p.name != "in"]
            broken = [n for n in here if content(place / n) != of.outputs.get(n)]
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
        if ended.code not in (0, REFUSED):
            row.take(f"ended with {ended.code}: {ended.said}")
        else:
            row.take(f"{broken} is neither whole nor absent" if broken else "")

    return fault


def two_at_once(of: Reference, rng: Random, row: Row) -> None:
    """Two runs write one output at the same time."""
    _clear(of.command, of.place)
    other = os.fork()
    if other == 0:
        code = SURPRISED
        with contextlib.suppress(TraceconvError):
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            time.sleep(rng.random() / 20)
            of.command.act(of.place)
            code = 0
        os._exit(code)
    ended = forked(partial(of.command.act, of.place))
    _, status = os.waitpid(other, 0)
    codes = (ended.code, os.waitstatus_to_exitcode(status))
    if not set(codes) <= {0, REFUSED, SURPRISED} or 0 not in codes:
        row.take(f"ended with {codes}: {ended.said}")
    else:
        row.take(of.faulty() or of.again())


def onto_itself(of: Reference, rng: Random, row: Row) -> None:
    """The output is the input: it stays as it was, or becomes the whole output."""
    path = next((of.place / "in").rglob("trace_view.json"))
    was = path.read_bytes()
    whole = of.place / "whole.json"

    def convert(out: Path) -> object:
        return traceconv.convert(str(path), out=str(out), force=True)

    forked(partial(convert, whole))
    at = rng.choice((-1, rng.randint(1, 60)))
    ended = forked(partial(convert, path), at=at, fault=_die)
    right = path.read_bytes() in (was, whole.read_bytes())
    for left in path.parent.glob("*.part"):
        left.unlink()
    path.write_bytes(was)
    _clear(of.command, of.place)
    for left in (of.place / "tmp").iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    fine = right and ended.code in (0, REFUSED, -signal.SIGKILL)
    row.take("" if fine else f"ended with {ended.code}: {ended.said}", ended.phase)


def closed_pipe(of: Reference, rng: Random, row: Row) -> None:
    """``| head``: who reads goes away, at once or after some bytes; or nobody was there."""
    words = rng.choice(
        (["merge", "in", "-f", "-o", "-"], ["inspect", "in"], ["stats", "in"], ["formats"])
    )
    close = rng.choice(("reader", "stdout"))
    command = [sys.executable, "-m", "traceconv", *words]
    if close == "stdout":
        line = " ".join(command) + " >&-"
        done = subprocess.run(
            line, shell=True, cwd=of.place, stderr=subprocess.PIPE, check=False, text=True
        )
        code, said = done.returncode, done.stderr
    else:
        with subprocess.Popen(
            command, cwd=of.place, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            child.stdout.read(rng.choice((0, 1)))
            child.stdout.close()
            said = child.stderr.read().decode(errors="replace")
            code = child.wait()
    bad = "Traceback" in said or "Exception ignored" in said
    row.take(f"{' '.join(words)} {close}: {code} {said[-300:]}" if bad else "")


ANY = tuple(c.name for c in COMMANDS)
LOCAL = tuple(c.name for c in COMMANDS if c.swept)

KINDS: dict[str, tuple[Callable[[Reference, Random, Row], None], tuple[str, ...]]] = {
    "kill -9": (killed, ANY),
    "two runs, one output": (two_at_once, ("merge", "copy", "split", "bundle", "report")),
    "output is the input": (onto_itself, ("copy",)),
    "input replaced": (changed(_replace), ("merge", "copy", "report")),
    "input shrunk": (changed(_shrink), ("merge", "copy", "report")),
    "input grown": (changed(_grow), ("merge", "copy", "report")),
    "files limited": (limited(resource.RLIMIT_FSIZE, lambda r: r.randint(0, 60_000)), LOCAL),
    "disk of the output full": (full_disk("small"), ("merge", "copy", "split", "bundle")),
    "temporary disk full": (full_disk("tmp"), ("merge", "split", "bundle", "shard, join")),
    "32 open files": (limited(resource.RLIMIT_NOFILE, lambda r: 32), ANY),
    "address space 1 GB": (limited(resource.RLIMIT_AS, lambda r: 1 << 30), ANY),
    "rename fails": (failing("rename", errno.EIO), LOCAL),
    "replace fails": (failing("replace", errno.ESTALE), LOCAL),
    "fsync fails": (failing("fsync", errno.EIO), LOCAL),
    "folder gone": (gone, LOCAL),
    "clock set back": (clock_set_back, ANY),
    "reader goes away": (closed_pipe, ("merge",)),
}
"""Every kind of fault, and the commands it is tried with."""


def table(tries: int, seed: int, only: str = "") -> dict[tuple[str, str], Row]:
    """Rows by kind and command; ``tries`` of every row, and ten times as many kills."""
    rows: dict[tuple[str, str], Row] = {}
    with prepared() as place:
        for command in COMMANDS:
            kinds = [k for k, (_, of) in KINDS.items() if command.name in of and only in k]
            if not kinds:
                continue
            reference = Reference(command, place)
            for kind in kinds:
                row = rows[kind, command.name] = Row()
                rng = Random(f"{seed} {kind} {command.name}")
                for _ in range(tries * (10 if kind == "kill -9" else 1)):
                    KINDS[kind][0](reference, rng, row)
            _clear(command, place)
    return rows
