"""Places all tests share."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""

CASES = sorted(ROOT.glob("golden/*/*/case.toml"))
"""The golden cases."""
