"""The syntax trees of the package, parsed once for all tests that read them."""

import ast
import gc
from functools import cache

from paths import ROOT

PACKAGE = ROOT / "traceconv"


@cache
def trees():
    """The tree of every module by its path."""
    gc.disable()  # trees are no garbage: looking for some takes three times as long as parsing
    found = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    gc.freeze()  # nor is it looked for later
    gc.enable()
    return found
