"""What systems without POSIX lack: locks, flags of files, renaming a file that is open.

This is a Linux from which those were taken, no Windows: it shows that nothing here needs them, not
that nothing else differs there.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")

TAKEN = """
import builtins, mmap, os, pathlib, sys

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY", "O_NONBLOCK", "getuid", "sysconf", "pread",
             "copy_file_range", "sched_getaffinity", "killpg"):
    delattr(os, name)
del mmap.MADV_DONTNEED


def unless_open(act):
    def refusing(path, *rest, **options):
        mine = os.path.realpath(path)
        for number in os.listdir("/proc/self/fd"):
            try:
                held = os.readlink(f"/proc/self/fd/{number}")
            except OSError:
                continue
            if "dir_fd" not in options and (held + "/").startswith(mine + "/"):
                raise PermissionError(13, "used by a process", str(path))
        return act(path, *rest, **options)
    return refusing


for name in ("rename", "replace", "unlink", "remove"):
    setattr(os, name, unless_open(getattr(os, name)))
plain_open = os.open


def no_folders(path, flags, *rest, **options):
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.startswith("traceconv") and os.path.isdir(path):
        raise PermissionError(13, "is a folder", str(path))
    return plain_open(path, flags, *rest, **options)


os.open = no_folders
"""


def run_there(code, *arguments, **options):
    """A fresh interpreter runs ``code`` on such a system; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"{TAKEN}\n{code}", *arguments],
        capture_output=True, text=True, cwd=options.get("cwd"),
        env={"PYTHONPATH": str(ROOT), "TRACECONV_CACHE": "off", **options.get("env", {})},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_can_be_imported():
    """Nothing needs ``fcntl``, ``resource`` or ``pwd`` to be loaded."""
    code = (
        "import importlib, pkgutil, traceconv\n"
        "for one in pkgutil.walk_packages(traceconv.__path__, 'traceconv.'):\n"
        "    if not one.name.rpartition('.')[2].startswith('_'):\n"
        "        importlib.import_module(one.name)\n"
        "print(len(sys.modules) > 200)"
    )
    assert run_there(code) == "True\n"


def test_commands_write_the_same_bytes(tmp_path):
    """Merged, packed, sharded; nothing temporary is left, here or in the temporary folder."""
    here, there, temporary = (tmp_path / name for name in ("here", "there", "tmp"))
    for folder in (here, there, temporary):
        folder.mkdir()
    code = (
        "from traceconv.cli import run\n"
        f"prof = {str(ROOT / 'golden/trace_view/demo/input')!r}\n"
        "for words in (['merge', prof, '-o', 't.pftrace'], ['merge', prof, '-o', 't.json'],\n"
        "              ['merge', prof, '-o', 't.json', '-f'], ['pack', prof, '-o', 't.tcz'],\n"
        "              ['merge', prof, '--shard', '1/2', '-o', 'part.shard'],\n"
        "              ['stats', prof, '-o', 't.csv'], ['stats', 't.tcz']):\n"
        "    assert run([words[0], *words[1:], '-q']) == 0, words\n"
    )
    run_there(code, cwd=there, env={"TRACECONV_TMPDIR": str(temporary)})
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=here, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "TRACECONV_CACHE": "off"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = {p.relative_to(here): p.read_bytes() for p in here.rglob("*") if p.is_file()}
    assert len(written) >= 5
    assert {
        p.relative_to(there): p.read_bytes() for p in there.rglob("*") if p.is_file()
    } == written
    assert list(temporary.iterdir()) == []


def test_what_a_run_has_open_is_not_swept(tmp_path):
    """A folder is kept by the file that is open in it; without that, it is removed."""
    code = (
        "from pathlib import Path\n"
        "from traceconv.scratch.temporary import TemporaryFolder, named_temporary_file, sweep\n"
        "folder, file = TemporaryFolder(), named_temporary_file()\n"
        "here = Path(folder.name).parent\n"
        "Path(folder.name, 'x').write_text('y')\n"
        "left = here / 'traceconv-tmp-abcdefgh'\n"
        "left.mkdir()\n"
        "(left / 'x').write_text('y')\n"
        "sweep(here)\n"
        "print(Path(folder.name, 'x').exists(), Path(file.name).exists(), left.exists())\n"
        "folder.cleanup()\n"
        "print(Path(folder.name).exists())\n"
    )
    out = run_there(code, env={"TRACECONV_TMPDIR": str(tmp_path)})
    assert out == "True True False\nFalse\n"
