"""Switches and places all tests share."""

import os
import shutil

import pytest
from paths import CASES, ROOT


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden/*/*/expect; then read git diff",
    )


def pytest_configure(config):
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is for people: CI compares, it never rewrites")
    if shutil.which("nsys"):  # files that are no reports are not for it
        from traceconv.readers.nsight import export

        export.PROGRAM = "nsys-of-tests"


def pytest_generate_tests(metafunc):
    """Any test that asks for ``golden`` runs on every golden case: all tests of a case one after
    the other (that is what the scope does), so that they share what is made of it.
    """
    if "golden" in metafunc.fixturenames:
        names = [str(case.parent.relative_to(ROOT / "golden")) for case in CASES]
        cases = [case.parent for case in CASES]
        metafunc.parametrize("golden", cases, ids=names, scope="session")


@pytest.fixture
def update_golden(request):
    """Whether expectations are to be rewritten."""
    return request.config.getoption("--update-golden")


@pytest.fixture
def root():
    """The repository."""
    return ROOT
