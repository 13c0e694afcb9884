"""What the profiler's own tables beside a timeline say, by ``csv`` and ``json``: figures that are
not in the trace, and that ``traceconv`` repeats as they are."""

import csv
import json
import re
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path
from types import SimpleNamespace

from .figures import PARTS

_TOTAL = re.compile(r"Total Op Info|.*-total\b.*")
_STEP = re.compile(r"step(\d+)")
_UNIT = re.compile(r"\((us|ms)\)\Z")
_NS = {"us": 1000, "ms": 10**6}


class Stated:
    """The tables of one rank.

    Attributes:
        names: of all, those that cannot be read here among them.
        parts: captures of the rank, if they are several; else 0.
    """

    def __init__(self, found):
        self.parts = len(found.parts)
        self.names, self._paths = set(found.tables), defaultdict(list)
        for part in found.parts or (found,):
            for name, files in part.tables.items():
                self._paths[name] += [Path(part.source.title(file)) for file in files]

    def _texts(self, name, *endings):
        for path in self._paths[name]:
            if path.name.endswith(endings) and path.is_file():
                yield path.read_text(encoding="utf-8-sig", errors="replace")

    def table(self, name):
        """The texts of a table in CSV."""
        return self._texts(name, ".csv")

    def in_databases(self, name):
        """Whether rows of a table are in databases, which are not read here."""
        return any(path.suffix == ".db" for path in self._paths[name])

    def types(self):
        """Types of operators by full name, or by the last part of it: MindSpore before 2.4."""
        found = {}
        for text in self._texts("output_op_compute_time_detail", ".txt"):
            for line in text.splitlines():
                words = line.split()
                if len(words) == 4 and "-op" in words[0]:
                    found[words[0]] = words[1]
        for text in self._texts("framework_raw", ".csv"):
            for row in csv.DictReader(text.splitlines()):
                found[row["full_kernel_name"]] = row["kernel_type"]
        return found

    def operations(self):
        """Operations of ``communication.json``, as :class:`.comm.Operation` has them."""
        found = []
        for text in self._texts("communication", ".json"):
            for step, kinds in json.loads(text, parse_float=Decimal).items():
                number = _STEP.fullmatch(step)
                for name, about in ((n, a) for ops in kinds.values() for n, a in ops.items()):
                    times = about["Communication Time Info"]
                    if not _TOTAL.match(name) and "Elapse Time(ms)" in times:
                        over = about.get("Communication Bandwidth Info", {})
                        found.append(_Told(number and int(number[1]), name, times, over))
        return found

    def fetches(self):
        """When the device fetched data, ns, by the tables of its queue."""
        for name, scale in (("minddata_aicpu", 1000), ("minddata_getnext_profiling", 1)):
            rows = [
                line.split() for text in self._texts(name, ".txt") for line in text.splitlines()
            ]
            rows = [row for row in rows if len(row) >= 3]
            if rows:
                return [tuple(int(Decimal(edge) * scale) for edge in row[1:3]) for row in rows]
        return []

    def figures(self, number):
        """Of a step the row of ``step_trace_time.csv``, as :class:`.steps.Steps` has figures; None
        where there is none, several, or one that does not say how long the step took."""
        rows = self.steps().get(number, ())
        return _figures(rows[0]) if len(rows) == 1 else None

    def known(self):
        """Those of all rows that have them, with the number of their step."""
        found = {n: list(filter(None, map(_figures, rows))) for n, rows in self.steps().items()}
        for number, rows in found.items():
            for figures in rows:
                follows = number is not None and bool(found.get(number - 1))
                yield number, with_preparing(figures, follows)

    def beside(self, steps):
        """Numbers of the steps that no capture of several marks."""
        marked = {step.number for step in steps}
        return {n for n in self.steps() if n is not None and n not in marked} if self.parts else ()

    def links(self):
        """Rows of ``communication_matrix.json``, as the table of links has them: its sums, or where
        it has none, each operation."""
        rows = []
        for text in self._texts("communication_matrix", ".json"):
            for kinds in json.loads(text, parse_float=Decimal).values():
                for name, links in (
                    (n, pairs) for ops in kinds.values() for n, pairs in ops.items()
                ):
                    operation, _, group = name.partition("@")
                    if operation == "Total Op Info":
                        continue
                    for pair, about in links.items():
                        key = (
                            group,
                            operation,
                            *map(int, pair.split("-")),
                            about["Transport Type"],
                        )
                        rows.append((key, about))
        sums = [row for row in rows if row[0][1].endswith("-total")]
        for key, about in sums or rows:
            size = int((Decimal(about["Transit Size(MB)"]) * 10**6).quantize(1, ROUND_HALF_UP))
            time = Decimal(about["Transit Time(ms)"]) * 10**6
            yield key, int(time.quantize(1, ROUND_HALF_UP)), size, not sums

    def packages(self):
        """Packages of ``communication.json`` by transport and size, bytes: a count and ns."""
        found = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        for operation in self.operations():
            for over, about in operation.transports.items():
                for size, (count, time) in about["Size Distribution"].items():
                    if not str(count).isdecimal():
                        continue  # traceconv reports the row
                    both = found[over][round(Decimal(size) * 10**6)]
                    both[0] += int(count)
                    both[1] += int((Decimal(time) * 10**6).quantize(1, ROUND_HALF_UP))
        return found

    def operators(self):
        """Rows of ``flops_<rank>.txt`` and the sums over all operators."""
        found = []
        for text in self._texts("flops_summary", ".json"):
            found.append(("(model)", json.loads(text)))
        for text in self._texts("flops", ".txt"):
            rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
            found += [(row["full_kernel_name"], row) for row in rows]
        return found

    def steps(self):
        """Rows of ``step_trace_time.csv`` by step: figures, ns, by our headings."""
        found = defaultdict(list)
        for text in self._texts("step_trace_time", ".csv"):
            for row in csv.DictReader(text.splitlines()):
                number = row.get("Step") or ""
                key = int(float(number)) if number.replace(".", "", 1).isdigit() else None
                found[key].append({f"{name}(ns)": _ns(value) for name, value in row.items()})
        return found


def with_preparing(figures, follows):
    """What is before the first work of a step is idle, and waits for input at most; where the step
    before is in the table it is in Free, which counts it where it begins."""
    before = figures["input_wait"]
    more = 0 if follows else before or 0
    free = figures["free"] + more
    waits = None if before is None else min(before, free)
    return figures | {"free": free, "known": figures["known"] + more, "input_wait": waits}


def _figures(row):
    names = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    parts = [row.get(f"{name}(ns)") for name in names]
    if None in parts:
        return None
    computing, communication, alone, free = parts
    return {
        "computing": computing, "communication": communication, "not_overlapped": alone,
        "free": free, "copying": None, "copy_not_overlapped": None, "unclassified": None,
        "known": computing + alone + free, "input_wait": row.get("Preparing(ns)"),
    }  # fmt: skip


class _Told:
    """One operation of ``communication.json``."""

    def __init__(self, step, name, times, transports):
        operation, _, self.group = name.partition("@")
        self.transports = transports
        self._ns = {
            _UNIT.sub("(ns)", key): int((value * _NS[unit[1]]).quantize(1, ROUND_HALF_UP))
            for key, value in ((k, Decimal(v)) for k, v in times.items())
            if (unit := _UNIT.search(key))
        }
        self.row = SimpleNamespace(
            step=-1 if step is None else step, name=operation,
            start=self._ns["Start Timestamp(ns)"], dur=self._ns["Elapse Time(ns)"],
        )  # fmt: skip

    def parts(self):
        return {name: self._ns.get(name) for name in PARTS}


def _ns(us):
    try:
        return int((Decimal(us) * 1000).quantize(1, ROUND_HALF_UP))
    except (InvalidOperation, TypeError):
        return None
