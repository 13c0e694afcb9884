"""``python -m tests.faults``: see :mod:`tests.faults`."""

import argparse

from tests.faults import table

parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
parser.add_argument("--tries", type=int, default=7, help="of every row; ten times as many kills")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--kind", default="", help="only kinds with this text")
given = parser.parse_args()
rows = table(given.tries, given.seed, given.kind)
print(f"{'fault':<26}{'command':<14}{'tried':>6}{'survived':>9}  phases")
for (kind, command), row in sorted(rows.items()):
    line = f"{kind:<26}{command:<14}{row.tried:>6}{row.survived:>9}"
    phases = (f"{name} {count}" for name, count in sorted(row.phases.items()))
    print(f"{line}  {', '.join(phases)}" if kind == "kill -9" else line)
tried, survived = (sum(getattr(row, k) for row in rows.values()) for k in ("tried", "survived"))
print(f"{'all':<40}{tried:>6}{survived:>9}")
for (kind, command), row in rows.items():
    for why in sorted(set(row.why))[:5]:
        print(f"{kind}, {command}: {why}")
raise SystemExit(tried != survived)
