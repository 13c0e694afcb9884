"""One capture: merged, decoded, recomputed, compared."""

import re
from pathlib import Path

import traceconv

from . import (
    comm,
    device,
    expert,
    graph,
    hang,
    host,
    idle,
    live,
    losses,
    ranges,
    report,
    rules,
    sampled,
    stack,
    table_rules,
    work,
    written,
)
from . import steps as step_tables
from .compare import DIFFERENT, EQUAL, UNKNOWN_THERE, Tally, plain
from .figures import JOB, Facts
from .intervals import differing, total
from .stated import Stated
from .steps import FIGURES, LANES, Steps
from .work_rules import BANDWIDTH, PEAK

KEYS = {
    "step_summary": ("Graph",), "step": ("Graph", "Step", "Window"), "stage": ("Stage",),
    "overlap": ("Graph", "Step", "Window"), "step_trace_time": ("Graph", "Step", "Window"),
    "op": ("Operator", "Core Type"), "type": ("OP Type", "Core Type"),
    "kernel": ("Kernel", "Kind"), "launch": ("Kernel",), "copy": ("Copy",), "device": ("Device",),
    "shape": ("Step", "OP Type", "Input Shapes"), "module": ("Module",), "phase": ("Phase",),
    "comm": ("Group", "Operation"),
    "collective": ("Group", "Operation", "Group Size", "Message(B)"),
    "collective_wait": ("Group", "Operation", "Group Size", "Message(B)"),
    "comm_op": ("Step", "Group", "Operation", "Start Time(ns)"),
    "link": ("Group", "Operation", "Source", "Destination", "Transport"),
    "memory_live": ("Device", "Operator", "Module"),
    "memory_path": ("Device", "Path"),
    "memory_oom": ("Timestamp(ns)", "Device", "Operator", "Module"),
    "memory_phase": ("Phase", "Component", "Measure"),
    "memory_step": ("Step", "Component", "Measure"),
    "memory": ("Component", "Measure"), "memory_curve": ("Component", "Measure", "Timestamp(ns)"),
    "api": ("Level", "API Name"), "flops": ("Operator",),
    "operator_flops": ("Operator", "Input Shapes", "Input Types"),
    "operator_bound": ("OP Type", "Core Type"),
    "expert": ("Group",), "expert_peer": ("Group", "Peer"),
    "expert_layer": ("Source", "Group", "Layer"), "frequency_kernel": ("Clock", "Kernel", "Value"),
    "frequency": ("Step", "Component", "Measure"), "network": ("Step", "Component", "Measure"),
    "stack": ("Line",), "stack_path": ("Path",),
    "range": ("Range", "Kind"), "range_instance": ("Range", "Kind", "Thread", "Start Time(ns)"),
    "idle": ("Cause",), "idle_step": ("Step", "Cause"),
    "idle_gap": ("Step", "Device", "Start Time(ns)"), "launch_queue": ("Device", "Stream"),
    "graph": ("Graph",), "graph_node": ("Graph", "Node", "Kernel"),
}  # fmt: skip
"""What names a row of each table besides the rank."""

_QUEUES = "files of MindSpore's data pipeline, not in the trace: tests/real_data/test_stats.py"
ELSEWHERE = {
    "cluster": "a cluster's own table, not in the trace: tests/real_data/test_cluster_tables.py",
    "cluster_bandwidth": "a cluster's own file, not in the trace: "
    "tests/real_data/test_cluster_tables.py",
    "data": _QUEUES, "pipeline": _QUEUES, "cpu": _QUEUES,
    "reader": "Paddle's log of timers, not in the trace: tests/real_data/test_stats.py",
    "paddle_summary": "repeats Paddle's own summary: tests/real_data/test_stats.py",
}  # fmt: skip
"""Tables that are not recomputed here: why, and what compares them."""

COUNTED = ("memory", "memory_curve", "memory_step", "memory_phase", "frequency", "network")
"""Tables of counters."""

_PART = re.compile(r"\(\d+ of (\d+) ranks of the (job|group)\)")
"""The trace does not say how many ranks there are."""

_ALWAYS = 1e30
"""A threshold that makes every rule speak, on the side it speaks on."""


class Capture:
    """Everything that is said of a capture, and the trace that is written of it."""

    def __init__(self, path, folder, **options):
        where, options = options, {"jobs": 1, **options}
        found = traceconv.open(str(path), **where).found
        drawn = [one.rank for one in found if one.reader != "ascend_tables"]
        if drawn and len(drawn) < len(found):  # figures of the others are not in the trace
            options["ranks"] = drawn
        merge = {"force": True, "mode": "detail", "scope": True, "align": "none", **options}
        out = Path(folder) / "out.json"
        self.report = traceconv.merge(str(path), out=str(out), analyse=True, **merge)
        self.document = self.report.as_dict()
        self.ranks = written.chrome(out.read_bytes())
        out = out.with_suffix(".pftrace")
        self.account = traceconv.merge(str(path), out=str(out), **merge).lines()
        self.perfetto = out
        self.stats = traceconv.stats(str(path), by="all", **options)
        self.diagnosis = traceconv.diagnose(
            str(path), align="none", threshold=_thresholds(), **options
        )
        self.stated = {one.rank: Stated(one) for one in found if one.rank in self.ranks}
        self.facts = {r: Facts.of(self.document, r, self.stated[r]) for r in self.ranks}
        self.every = {rank: Steps(one, self.facts[rank]) for rank, one in self.ranks.items()}
        self.hosts = {r: host.Host(one, self.facts[r]) for r, one in self.ranks.items()}
        self.operations = {rank: comm.operations(one) for rank, one in self.ranks.items()}
        self.tables = self._tables()
        self._forget_shares()

    def _tables(self):
        ranks, facts, every, hosts = self.ranks, self.facts, self.every, self.hosts
        notes = {rank: self.document["notes"][str(rank)] for rank in ranks}
        lines, paths = stack.tables(hosts)
        causes, causes_by_step, gaps = idle.tables(every, hosts)
        operations = {r: comm.stated(self.operations[r], ranks[r], facts[r]) for r in ranks}
        return {
            "step_summary": step_tables.step_summary(every),
            "step": step_tables.step(every),
            "stage": device.stage(ranks, facts),
            "overlap": step_tables.overlap(every),
            "step_trace_time": step_tables.step_trace_time(every),
            "op": host.ops(ranks, hosts),
            "type": host.types(ranks, hosts),
            "kernel": device.kernel(ranks, facts),
            "launch": device.launch(ranks),
            "idle": causes,
            "idle_step": causes_by_step,
            "idle_gap": gaps,
            "launch_queue": idle.queues(ranks),
            "copy": device.copy(ranks, facts),
            "device": device.device(every),
            "shape": host.shapes(ranks, hosts, every),
            "module": host.modules(ranks, hosts),
            "phase": host.phases(ranks, hosts),
            "comm": comm.comm(operations),
            "collective": comm.collective(ranks),
            "collective_wait": comm.collective_wait(ranks),
            "comm_op": comm.comm_op(operations),
            "link": comm.link(self.operations, facts),
            "flops": host.flops(facts),
            "operator_flops": work.flops(ranks, hosts),
            "operator_bound": work.bounds(ranks, hosts),
            "memory": device.memory(ranks, facts),
            "memory_curve": device.memory_curve(ranks, facts),
            "memory_live": live.live(hosts),
            "memory_path": live.paths(hosts),
            "memory_oom": live.failed(hosts),
            "memory_phase": list(live.by_phase(hosts)),
            "memory_step": list(live.by_step(ranks, every)),
            "api": host.api(ranks),
            "range": ranges.ranges(hosts, notes),
            "range_instance": ranges.every(hosts, notes),
            "frequency": sampled.frequency(ranks, every),
            "network": sampled.network(ranks, every),
            "expert": expert.loads(ranks),
            "expert_peer": expert.peers(ranks),
            "expert_layer": expert.layers(ranks, hosts, every),
            "frequency_kernel": sampled.by_clock(ranks),
            "stack": lines,
            "stack_path": paths,
            "graph": graph.graphs(hosts),
            "graph_node": graph.nodes(hosts),
        }

    def _forget_shares(self):
        """Where operators are missing, nothing is a share of all of them."""
        for name in ("op", "type", "kernel", "copy", "shape", "comm"):
            for (rank, *_), row in self.tables[name].items():
                told = name == "comm" and any(
                    "communication" in s.names for s in self.stated.values()
                )
                some = self.facts.values() if rank is None else [self.facts[rank]]
                if not told and any(fact.partial for fact in some):
                    row["Ratio(%)"] = None

    def compared(self):
        """The tally of everything."""
        tally = Tally()
        self._formats(tally)
        self._lanes(tally)
        for result in self.stats.results:
            self._table(tally, result.table.name, result.data.columns)
        self._findings(tally)
        self._spoken(tally)
        self._overview(tally)
        self._account(tally)
        return tally

    def _formats(self, tally):
        apart, compared = written.same(self.ranks, written.perfetto(self.perfetto.read_bytes()))
        tally.counts["written rows"][EQUAL] += compared
        for text in apart:
            tally.counts["written rows"][DIFFERENT] += 1
            tally.differences.append(("written rows", text))

    def _lanes(self, tally):
        """The overlap lanes are what the rows make: to a nanosecond at each border, where the
        source's own lanes were finer than its rows."""
        for rank, known in self.every.items():
            drawn = step_tables.lanes_drawn(known)
            for name in {*drawn, *known.sets}:
                for cls in LANES:
                    ours = known.sets.get(name, {}).get(cls, [])
                    pieces = differing(ours, drawn.get(name, {}).get(cls, []))
                    worst = max((end - start for start, end in pieces), default=0)
                    where = f"rank {rank} {name} {cls}: {total(ours)} ns, pieces up to"
                    tally.one("overlap lanes", where, worst if worst > 1 else 0, 0)

    def _table(self, tally, name, columns):
        data = {heading: column.tolist() for heading, column in columns.items()}
        rows = [dict(zip(data, cells, strict=True)) for cells in zip(*data.values(), strict=True)]
        if name not in KEYS:
            tally.counts[name][UNKNOWN_THERE] += sum(
                not isinstance(value, str) for row in rows for value in row.values()
            )
            return
        keys = KEYS[name]
        if name in COUNTED:
            rows = self._drawn(rows)
        for row in rows:
            if "Window" in row and row.get("Source", "timeline") != "timeline":
                row["Source"] = "elsewhere"  # the vendor's table, or nowhere
            row.setdefault("Window")
        ours = [((row["Rank"], *(row[key] for key in keys)), row) for row in rows]
        figures = [key for key in data if key not in ("Rank", *keys)]
        tally.rows(name, ours, self.tables[name], figures)
        if name in ("overlap", "device"):
            self._possible(tally, ours, figures)

    def _possible(self, tally, ours, figures):
        """Whatever a definition says, time is not negative, and a share at most the whole."""
        for key, row in ours:
            for name in figures:
                value = plain(row[name])
                if value is None or isinstance(value, str):
                    continue
                most = 100 + 1e-9 if name.endswith("(%)") else float("inf")
                tally.one("possible", f"{key} {name} = {value}", 0 <= value <= most, True)

    # -- findings --------------------------------------------------------------------------

    def _drawn(self, rows):
        """Without those of counters that are zero throughout, which are counted, not written."""
        peaks = {}
        for row in rows:
            key = (row["Rank"], row["Component"], row["Measure"])
            most = next(row[k] for k in ("Peak(B)", "Size(B)", "Max") if k in row)
            peaks[key] = max(peaks.get(key, 0), most)
        counted = any(issue.code == "counter-zero" for issue in self.report.issues)
        return [
            row
            for row in rows
            if not counted or peaks[row["Rank"], row["Component"], row["Measure"]]
        ]

    def _findings(self, tally):
        stated = {
            rank: comm.stated(ones, self.ranks[rank], self.facts[rank])
            for rank, ones in self.operations.items()
        }
        recomputed = rules.findings(self.ranks, self.hosts, self.every, stated, self.tables["link"])
        recomputed |= table_rules.findings(self.tables, self.every)
        document, said = self.diagnosis.as_dict(), {}
        for one in (*document["findings"], *document["minor"], *document["good"]):
            figures = {"value": one["value"], **one["figures"]}
            if one["at_most"]:  # else it is the gain of a replay
                figures["ms_per_step"] = one["ms_per_step"]
            figures["slices"] = [piece["dur_ns"] for piece in one["slices"]]
            key = (one["rule"], one["rank"], one["where"])
            said[key] = figures
        for (rule, *place), figures in said.items():
            other = recomputed.get((rule, *place))
            if rule == "memory-capacity":
                other = next((v for (r, at, _), v in recomputed.items()
                              if (r, at) == (rule, place[0])), None)  # fmt: skip
            for name, value in figures.items():
                there = None if other is None else other.get(name)
                if name == "ms_per_step" and None not in (value, there):
                    value, there = value <= there + 1e-9, True
                if not isinstance(value, str) and name != "shapes":
                    tally.one("diagnose", f"{rule} {place} {name}", value, there)
        for rule, *place in recomputed.keys() - said.keys():
            if rule not in ("memory-capacity", "slow-link", "not-sunk"):
                tally.one("diagnose", f"{rule} {place}", "silent", "speaks")

    def _spoken(self, tally):
        """With the rules' own thresholds, those speak whose value is beyond."""
        from traceconv.analysis.rules.catalog import RULES

        document, overview = self.diagnosis.as_dict(), self.document["overview"]
        forced = [*document["findings"], *document["minor"], *document["good"]]
        spoken = {one["rule"] for one in (*overview["findings"], *overview["good"])}
        minor = {line.partition(" ")[0] for line in overview["minor"]}
        for rule in RULES.values():
            main = rule.limits[0]
            values = [one["value"] for one in forced if one["rule"] == rule.id]
            if not values or len(rule.limits) > 1:
                continue
            values = [
                one["value"]
                for one in forced
                if one["rule"] == rule.id and not _covered(rule, one["rank"], overview["straggler"])
            ]
            beyond = any(v < main.value if main.below else v > main.value for v in values)
            tally.one("rules that speak", rule.id, rule.id in spoken | minor, beyond)
        good = {rule.id for rule in RULES.values() if rule.severity == "good"}
        for name, rules_of in (("findings", spoken - good), ("good", spoken & good)):
            tally.one("rules that speak", name, {one["rule"] for one in overview[name]}, rules_of)

    # -- report ----------------------------------------------------------------------------

    def _overview(self, tally):
        said = self.document["overview"]
        per, rows = report.overlap_rows(self.every, self.tables)
        ours = {(row["rank"],): row for row in said["overlap"].get("rows", ())}
        tally.rows("report overlap", ours, {(rank,): row for rank, row in rows.items()})
        if ours and rows:
            tally.one("report overlap", "per", said["overlap"]["per"], per)
        ours = {(row["rank"],): row for row in said["steps"].get("rows", ())}
        steps = {(rank,): row for rank, row in report.steps_rows(self.every).items()}
        tally.rows("report steps", ours, steps)
        self._cut_rows(tally, "operators", ("name", "core"), report.operator_rows(self.tables))
        kinds = report.communication_rows(self.tables)
        self._cut_rows(tally, "communication", ("group", "operation"), kinds)
        cells = {
            (group["group"], cell["source"], cell["destination"]): cell
            for group in said["links"].get("groups", ()) for cell in group["cells"]
        }  # fmt: skip
        other = report.link_cells(self.tables)
        tally.rows("report links", cells, {key: other[key] for key in cells if key in other})
        self._head(tally, said)
        self._curves(tally, said)
        cells = [v for row in said["heat"].get("rows", ()) for v in row["late_ns"]]
        tally.counts["report heat"][UNKNOWN_THERE] += sum(v is not None for v in cells)

    def _cut_rows(self, tally, name, keys, recomputed):
        """Sections that show the largest rows; those shown are compared."""
        section = self.document["overview"][name]
        rows = section.get("rows", ())
        ours = {tuple(row[key] for key in keys): row for row in rows}
        kept = {key: row for key, row in recomputed.items() if key in ours}
        tally.rows(f"report {name}", ours, kept)
        if rows and recomputed:
            others = len(recomputed) - len(rows)
            tally.one(f"report {name}", "others", section["others"], others)

    def _head(self, tally, said):
        named = [said["straggler"]["culprit"], *said["straggler"]["others"]]
        tally.counts["stragglers"][UNKNOWN_THERE] += sum(
            type(value) is int for one in named if one for value in one.values()
        )
        known = {rank: losses.Losses.of(self.every.get(rank)) for rank in self.document["ranks"]}
        verdict = self.diagnosis.verdict
        late = verdict.late if verdict else ()
        named = verdict.headline() if verdict else ""  # comes first, and is not recomputed
        begins = "Rank ", "Mean of ranks ", "Hang"
        merged = [line for line in self.account if line.startswith(begins) and line != named]
        lines = ("report", said["headline"]), ("diagnose", self.diagnosis.headline)
        for where, line in (*lines, *(("merge", line) for line in merged)):
            line = line.removeprefix(named).lstrip() or line
            for rank, one in self.ranks.items():
                if one.place:
                    line = line.replace(f"rank {rank} ({one.place})", f"rank {rank}")
            other = hang.line(self.ranks) or losses.headline(known, late, _size(line))
            tally.one("headline", where, line, other)
        ours = {
            (one["class"], one["rank"], one["stage"]): one["ms_per_step"] for one in said["losses"]
        }
        theirs = {(one.name, one.rank, one.stage): one.ns / 1e6 for one in losses.lost(known, late)}
        for key in ours.keys() | theirs.keys():
            tally.one("losses", key, ours.get(key, "not lost"), theirs.get(key, "not lost"))
        tiles = {tile["name"]: tile["value"] for tile in said["tiles"]}
        for name, value in losses.cards(known, late).items():
            tally.one("headline", name, tiles.get(name), value)
        if not verdict or verdict.kind == "no verdict":
            lines = [line for line in self.account if " computes longest: " in line]
            tally.one("headline", "slowest", "".join(lines), report.most_computing(self.every))

    def _curves(self, tally, said):
        """Every sample that is drawn is one of the trace."""
        zero, known = int(said["zero_ns"]), report.samples(self.ranks)
        for drawing in said["curves"].get("drawings", ()):
            for line in drawing["lines"] if drawing["axis"] == "time" else ():
                samples = known.get((drawing["title"], line["rank"]), set())
                for x, y in zip(line["x"], line["y"], strict=True):
                    where = f"{drawing['title']} at {x}"
                    tally.one("report curves", where, y, y if (zero + x, y) in samples else None)

    def _account(self, tally):
        """The steps and sums that the JSON account of a merge has of each rank."""
        for rank, known in self.every.items():
            notes = self.document["notes"][str(rank)]
            ours = {
                (-1 if one["graph"] is None else one["graph"], one["step"], one["start_ns"]): one
                for one in notes["steps"]
            }
            theirs = {}
            for step in known.steps:
                figures = known.figures(step)
                figures = {f"{cls}_ns": figures[cls] for cls in FIGURES}
                if not any(known.figures(one)["unclassified"] for one in known.steps):
                    del figures["unclassified_ns"]
                theirs[step.graph, step.number, step.start] = {
                    "dur_ns": step.dur, "device_start_ns": step.window[0],
                    "device_dur_ns": step.window[1] - step.window[0], **figures,
                    "pause_ns": step.pause,
                }  # fmt: skip
            tally.rows("account", ours, theirs)
            sums = notes.get("overlap", {}).get("sums_ns", {})
            own = known.sums()
            for cls, value in sums.items():
                other = own["free lane" if cls == "free" else cls]
                tally.one("account", f"rank {rank} {cls}", value, other)
            if sums:
                tally.one("account", f"rank {rank}", notes["overlap"]["idle_ns"], own["free"])


def _covered(rule, rank, verdict):
    """Whether the verdict names what a rule finds on a rank, so that the report leaves it out."""
    late = [one["rank"] for one in (verdict["culprit"], *verdict["others"]) if one]
    kinds = {"straggler": rank in late, "uneven stages": verdict["stage"] is not None}
    return kinds.get(rule.covered_by, False)


def _size(headline):
    part = _PART.search(headline)
    return (int(part[1]), part[2]) if part else None


def _thresholds():
    """Values by which every rule reports what it measured."""
    from traceconv.analysis.rules.catalog import RULES

    values = {rule.id: _ALWAYS if rule.limits[0].below else -_ALWAYS for rule in RULES.values()}
    return {
        **values, "communication-wait.elapsed": -1.0, "launch-starved.idle": -1.0,
        "sending-slow.host-empty": _ALWAYS, "memory-capacity.capacity": 1.0,
        "slow-link": _ALWAYS,
        "matmul-efficiency.share": -1.0, "attention-efficiency.share": -1.0,
        "matmul-efficiency.peak": PEAK, "matmul-efficiency.bandwidth": BANDWIDTH,
        "attention-efficiency.peak": PEAK, "attention-efficiency.bandwidth": BANDWIDTH,
    }  # fmt: skip


__all__ = ["JOB", "Capture"]
