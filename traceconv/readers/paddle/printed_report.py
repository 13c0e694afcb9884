"""The lines of Paddle's printed reports as rows of tables."""

from __future__ import annotations

import re

from traceconv.core.patterns import lazy_regex

Row = dict[str, str]

_TITLE = lazy_regex(r"-{3,}(?P<title>[A-Z][A-Za-z ]+) Summary-{3,}\s*\Z")
_RULE = lazy_regex(r"-{2,}(?:  -{2,})+\s*\Z")
_THREAD = lazy_regex(r"-{3,}Thread: (?P<thread>.+?)(?<!-)-{3,}+\s*+\Z")
_UNIT = lazy_regex(r"Time unit: (?P<unit>s|ms|us|ns)\s*\Z")
_FIVE = ("Total", "Avg", "Max", "Min", "Ratio(%)")
_NAMES = ("Event Type", "Device", "")
"""Headings of the first column, which is called Name here."""

_PERF = lazy_regex(r"=+Perf Summary=+\s*\Z")
_RATIO = lazy_regex(r"Reader Ratio: (?P<ratio>[\d.]+)%\s*\Z")
_IPS = lazy_regex(r"Time Unit: s, IPS Unit: (?P<unit>.+)\Z")
_COST = lazy_regex(
    r"\|\s*(?P<measure>reader_cost|batch_cost|ips)\s*"
    r"\|\s*(?P<avg>[\d.]+)\s*\|\s*(?P<max>[\d.]+)\s*\|\s*(?P<min>[\d.]+)\s*\|\s*\Z"
)
_STEP = lazy_regex(
    r"(?P<prefix>.*?)(?<!\s)\s*+(?:reader_cost: (?P<reader>\d+\.\d+) s )?"
    r"batch_cost: (?P<batch>\d+\.\d+) s ips: (?P<ips>\d+\.\d+) (?P<unit>\S++)\s*+\Z"
)


class Report:
    """The tables of a log, line by line.

    Attributes:
        odd: numbers of lines in a table that do not fit its columns.
    """

    def __init__(self) -> None:
        self.odd: list[int] = []
        self._summary: list[Row] = []
        self._timer: list[Row] = []
        self._log: list[Row] = []
        self._section, self._unit, self._thread = "", "ms", ""
        self._starts: list[int] = []
        self._headings: list[str] = []
        self._waiting = ""  # the line after a rule, while it is not known to be the headings
        self._ruled = False
        self._block, self._ips, self._ratio = 0, "", ""

    def side_tables(self) -> dict[str, list[Row]]:
        """The rows by side table, those without rows left out."""
        tables = {
            "paddle_summary": self._summary,
            "paddle_timer": self._timer,
            "paddle_timer_log": self._log,
        }
        return {name: rows for name, rows in tables.items() if rows}

    def take(self, number: int, line: str) -> None:
        """One line."""
        line = line.rstrip("\r")
        if match := _TITLE.match(line):
            self._section, self._unit, self._thread = match["title"], "ms", ""
            self._headings, self._ruled, self._waiting = [], False, ""
        elif _PERF.match(line):
            self._section, self._block = "", self._block + 1
            self._ips = self._ratio = ""
        elif self._section:
            self._in_section(number, line)
        else:
            self._timed(number, line)

    def _in_section(self, number: int, line: str) -> None:
        if match := _UNIT.match(line):
            self._unit = match["unit"]
        elif _RULE.match(line):
            self._rule(line)
        elif match := _THREAD.match(line):
            self._thread = match["thread"]
        elif not line.strip() or line.startswith(("Note:", "---")):
            self._ruled, self._headings = False, []
            if not line.strip():
                self._timed(number, line)
        elif self._ruled and not self._headings:
            self._waiting, self._ruled = line, False
        elif self._headings:
            self._row(number, line)
        else:
            self._timed(number, line)

    def _rule(self, line: str) -> None:
        """Headings are between two rules, rows between the second and the next."""
        if self._waiting:
            self._headings = [
                self._column_name(cell.strip()) for cell in self._cells(self._waiting)
            ]
            self._waiting, self._ruled = "", False
            return
        self._starts = [match.start() for match in re.finditer("-+", line)]
        self._headings, self._ruled = [], True

    def _cells(self, line: str) -> list[str]:
        ends = [*self._starts[1:], len(line)]
        return [line[a:b] for a, b in zip(self._starts, ends, strict=True)]

    def _column_name(self, heading: str) -> str:
        heading = heading.replace(" (%)", "(%)")
        if heading in _NAMES:
            return "Name"
        return f"{heading}({self._unit})" if heading.endswith("Time") else heading

    def _row(self, number: int, line: str) -> None:
        cells = self._cells(line)
        blanks = len(cells[0]) - len(cells[0].lstrip())
        row = {"Section": self._section, "Thread": self._thread, "Level": str(blanks // 2)}
        for heading, cell in zip(self._headings, cells, strict=True):
            row |= self._split_cell(heading, cell.strip())
        if len(line) <= self._starts[-1] or not row.get("Name"):
            self.odd.append(number)
            return
        self._summary.append({key: "" if cell == "-" else cell for key, cell in row.items()})

    def _split_cell(self, heading: str, cell: str) -> Row:
        """A cell of five numbers as five cells."""
        if " / " not in heading:
            return {heading: cell}
        side = heading.partition(" ")[0]
        parts = [value.strip() for value in cell.split("/")]
        names = [f"{side} {measure}" if "%" in measure else f"{side} {measure}({self._unit})"
                 for measure in _FIVE]  # fmt: skip
        return dict(zip(names, parts, strict=False))

    def _timed(self, number: int, line: str) -> None:
        if match := _STEP.match(line):
            self._log.append({
                "Line": str(number), "Prefix": match["prefix"],
                "Reader Cost(s)": match["reader"] or "", "Batch Cost(s)": match["batch"],
                "Speed": match["ips"], "Unit": match["unit"],
            })  # fmt: skip
        elif match := _RATIO.match(line):
            self._ratio = match["ratio"]
        elif match := _IPS.match(line):
            self._ips = match["unit"].rstrip()
        elif match := _COST.match(line):
            speed = match["measure"] == "ips"
            self._timer.append({
                "Block": str(self._block), "Measure": match["measure"],
                "Unit": self._ips if speed else "s", "Avg": match["avg"], "Max": match["max"],
                "Min": match["min"], "Reader Ratio(%)": "" if speed else self._ratio,
            })  # fmt: skip
