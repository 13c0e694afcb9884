"""Tables of replayed graphs, from the calls that launched them."""

import re
from collections import defaultdict

from .figures import Timed, mean, percent
from .host import KNOWN_BY, UNNAMED

_LAUNCH = re.compile(r"(?:cuda|hip|cu)GraphLaunch\w*")
_WAYS = ("graph node id", "capture trace", "part of the capture trace",
         "order in the capture trace")  # fmt: skip


def _replays(host):
    """(graph, rows by node) of every replay, in the order of the launches."""
    ran = defaultdict(list)
    for row, _, call in host.launched:
        if _LAUNCH.fullmatch(call.name):
            ran[call.start, id(call)].append(row)
    numbers, nodes = {}, {}
    for _, rows in sorted(ran.items()):
        rows = sorted(rows, key=lambda row: row.start)
        stated = {row.args.get("graph") for row in rows if KNOWN_BY in row.args}
        key = (tuple(sorted(row.name for row in rows)), *stated)
        graph = numbers.setdefault(key, len(numbers))
        order = sorted(range(len(rows)), key=lambda i: (rows[i].name, i))
        first = nodes.setdefault(graph, order)
        yield graph, {node: rows[i] for node, i in zip(first, order, strict=True)}


def graphs(hosts):
    """Sums of all replays of each graph, and the part whose operator or module is known."""
    found = {}
    for rank, host in hosts.items():
        replays = list(_replays(host))
        every = sum(row.dur for _, rows in replays for row in rows.values())
        for graph in {graph for graph, _ in replays}:
            own = [rows.values() for of, rows in replays if of == graph]
            named = [row for rows in own for row in rows if KNOWN_BY in row.args]
            spent = sum(row.dur for rows in own for row in rows)
            known = sum(row.dur for row in named)
            ways = {row.args[KNOWN_BY] for row in named}
            found[rank, graph] = {
                "Nodes": len(own[0]), "Replays": len(own), "Total Time(ns)": spent,
                "Avg Time(ns)": mean(spent, len(own)), "Ratio(%)": percent(spent, every),
                "Named(%)": percent(known, spent), "Named Time(ns)": known,
                "Known By": ", ".join(way for way in _WAYS if way in ways),
            }  # fmt: skip
    return found


def nodes(hosts):
    """Durations of every node of every graph."""
    timed, said = Timed(), {}
    for rank, host in hosts.items():
        for graph, rows in _replays(host):
            for node, row in rows.items():
                key = (graph, node, row.name)
                timed.add(rank, key, row.dur)
                said[key] = {
                    "Operator": row.args.get("operator", UNNAMED) if KNOWN_BY in row.args else "",
                    "Module": row.args.get("module", UNNAMED) if KNOWN_BY in row.args else "",
                    "Known By": row.args.get(KNOWN_BY, UNNAMED),
                }
    return {
        key: {**row, **said[key[1:]]}
        for key, row in timed.figures(("Graph", "Node", "Kernel")).items()
    }
