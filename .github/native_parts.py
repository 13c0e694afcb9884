"""Fails unless every native part is there: a wheel is worth its name only with all of them."""

import sys

from traceconv import native

lacking = {*native.TIERS} - {*native.in_use()}
if native.allocator() is None:
    lacking.add("_memory")
if lacking:
    sys.exit(f"not built, or not to be loaded: {', '.join(sorted(lacking))}")
