"""Places all tests share."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
"""The repository."""

SHARED = ROOT.parent / "shared"
"""What is kept beside the repository: reference texts, and captures that are not ours."""

DATA = SHARED / "data"
"""The real captures."""

ASCEND, GPU = DATA / "ascend", DATA / "gpu"
"""Those of NPUs; those of GPUs, and of programs that run on either."""

NEEDS_DATA = pytest.mark.skipif(not DATA.is_dir(), reason="the real captures are not here")
"""Marks a test that reads them. All tests below ``tests/real_data`` have it."""

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
"""A browser; None if there is none."""

NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
"""Marks a test that starts it."""
