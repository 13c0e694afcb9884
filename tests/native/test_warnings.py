"""The C parts are free of warnings, for every compiler that is here."""

import shutil
import subprocess
import sysconfig

import numpy as np
import pytest
from paths import ROOT

PARTS = sorted((ROOT / "traceconv" / "native").glob("*.c"))
FOLDERS = (sysconfig.get_paths()["include"], np.get_include())
COMPILERS = [
    found
    for found in (shutil.which(name) for name in ("gcc", "clang", "clang-16", "clang-14"))
    if found
]


@pytest.mark.parametrize("compiler", COMPILERS or [None], ids=lambda c: str(c).rpartition("/")[2])
def test_no_warning(compiler):
    """With all that gcc and clang warn of."""
    if compiler is None:
        pytest.skip("no compiler")
    for part in PARTS:
        folders = [f"-isystem{folder}" for folder in FOLDERS]
        command = [compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *folders, str(part)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stderr == ""
