"""Switches and places all tests share."""

import gc
import os
import shutil
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest
from effort import THOROUGH, effort
from golden_cases import CASES, case_folder
from hypothesis import settings
from paths import ROOT

IN_MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 4 << 30


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden/*/*/expect; then read git diff",
    )


def pytest_configure(config):
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is for people: CI compares, it never rewrites")
    if _has_room(IN_MEMORY):  # thousands of outputs are synced, and folders of runs removed
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
        os.environ.setdefault("TRACECONV_TMPDIR", str(IN_MEMORY))
    os.environ["TRACECONV_CACHE"] = "off"
    settings.register_profile("traceconv", max_examples=effort(40, 100))
    settings.load_profile("traceconv")
    if shutil.which("nsys"):  # files that are no reports are not for it
        from traceconv.readers.nsight import export

        export.PROGRAM = "nsys-of-tests"
    # Every process of the tests would compile what it imports once more: a third of its time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_collection_modifyitems(config, items):
    """Leave out tests that are marked ``thorough``, and all but every nth case of those that are
    marked ``sample(n)``.

    The thorough run, and a run that names a test ("file.py::test"), have all of them.
    """
    if THOROUGH or any("::" in arg for arg in config.args):
        return
    seen, left_out = Counter(), []
    for item in items:
        if item.get_closest_marker("thorough"):
            left_out.append(item)
        elif (mark := item.get_closest_marker("sample")) is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % mark.args[0]:
                left_out.append(item)
            seen[test] += 1
    config.hook.pytest_deselected(items=left_out)
    unwanted = set(left_out)
    items[:] = [item for item in items if item not in unwanted]


def pytest_collection_finish():
    """Thousands of tests are not looked through again whenever garbage is collected."""
    gc.collect()
    gc.freeze()


def _has_room(folder):
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > ENOUGH_BYTES


def pytest_generate_tests(metafunc):
    """Any test that asks for ``golden`` runs on every golden case, and any that asks for ``read``
    or ``refused`` on those that are: all tests of a case one after the other (that is what the
    scope does), so that they share what is made of it. ``some_read`` is every fifth
    case that is read of each reader, and all of them in the thorough run.
    """
    read = [case for case in CASES if not case.error]
    sample = [
        case
        for _, of_reader in groupby(read, key=lambda case: case.reader)
        for case in list(of_reader)[:: effort(5, 1)]
    ]
    chosen = {
        "golden": CASES,
        "read": read,
        "refused": [case for case in CASES if case.error],
        "some_read": sample,
    }
    for name, cases in chosen.items():
        if name in metafunc.fixturenames:
            names = [f"{case.reader}/{case.folder.name}" for case in cases]
            metafunc.parametrize(name, cases, ids=names, scope="session")


def _entered(case, monkeypatch):
    monkeypatch.chdir(case_folder(case.folder))
    return case


@pytest.fixture
def case(golden, monkeypatch):
    """Any golden case, with its folder as the current one."""
    return _entered(golden, monkeypatch)


@pytest.fixture
def good(read, monkeypatch):
    """The same of those whose input can be read at all."""
    return _entered(read, monkeypatch)


@pytest.fixture
def sampled(some_read, monkeypatch):
    """The same of a sample of them: for tests of what does not depend on the case."""
    return _entered(some_read, monkeypatch)


@pytest.fixture
def bad(refused, monkeypatch):
    """The same of those that show an error."""
    return _entered(refused, monkeypatch)


@pytest.fixture
def on_disk(monkeypatch):
    """Temporary files are where the system has them: only a disk keeps a limit on memory."""
    monkeypatch.delenv("TRACECONV_TMPDIR", raising=False)


@pytest.fixture
def update_golden(request):
    """Whether expectations are to be rewritten."""
    return request.config.getoption("--update-golden")


@pytest.fixture
def root():
    """The repository."""
    return ROOT
