"""Fails unless the installed package is a whole wheel: all native parts, none of their sources."""

import sys
from pathlib import Path

import traceconv
from traceconv import native

lacking = {*native.TIERS} - {*native.in_use()}
if native.allocator() is None:
    lacking.add("_memory")
if lacking:
    sys.exit(f"not built, or not to be loaded: {', '.join(sorted(lacking))}")

package = Path(traceconv.__file__).parent
if sources := sorted(str(path.relative_to(package)) for path in package.rglob("*.[ch]")):
    sys.exit(f"sources in the wheel: {', '.join(sources)}")

for data in ("py.typed", "report/report.html", "report/report.js", "cli/skeleton/reader.py.txt"):
    if not (package / data).exists():
        sys.exit(f"not in the wheel: {data}")
