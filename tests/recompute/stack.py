"""Call paths of the host, from how slices lie within each other, and what was launched there."""

import re
from collections import Counter, defaultdict

from .figures import JOB, UNKNOWN, percent

_FRAME = re.compile(r".+\(\d+\): .*")
_KEPT, _OTHERS = 1000, "(other paths)"
_NAMES = ("Calls", "Self Time(ns)", "Device Time(ns)", "Launches")


def _plain(name):
    return " ".join(re.sub(r" at 0x[0-9a-f]+", "", name.replace(";", ":")).split())


def call_paths(host):
    """Of every slice the names from the outermost to its own, and its line of Python."""
    nest = host.nested(host.calls)
    frames = any(_FRAME.fullmatch(_plain(row.name)) for row in nest.rows)
    found = {None: ((), (), "")}  # stack, names, line

    def of(row):
        if id(row) not in found:
            around = nest.parent[id(row)]
            stack, names, line = of(around) if around is not None else found[None]
            name, said = _plain(row.name), "" if frames else row.args.get("Call stack", "")
            own = tuple(f.strip() for f in reversed(str(said).split(";")) if f.strip())
            line = own[-1] if own else name if _FRAME.fullmatch(name) else line
            found[id(row)] = own or stack, (*names, name), line
        return found[id(row)]

    return nest, of


def _sums(host):
    paths, lines = defaultdict(Counter), defaultdict(Counter)
    nest, of = call_paths(host)
    any_launch = bool(host.launched)
    for row in nest.rows:
        stack, names, line = of(row)
        for table, key in ((paths, ";".join((*stack, *names))), (lines, line)):
            table[key].update({"Calls": 1, "Self Time(ns)": nest.self_ns(row)})
    for task, thread, call in host.launched:
        if task.cls != "wait":
            holder = nest.innermost(thread, call.start)
            stack, names, line = of(holder) if holder else ((), (), "")
            for table, key in ((paths, ";".join((*stack, *names))), (lines, line)):
                table[key].update({"Device Time(ns)": task.dur, "Launches": 1})
    for table in (paths, lines):
        for row in table.values():
            for name in _NAMES[2:]:
                row[name] = row[name] if any_launch else UNKNOWN
    return paths, lines


def _weight(row):
    return row["Self Time(ns)"] + (row["Device Time(ns)"] or 0)


def tables(hosts):
    """Lines and paths of all ranks, with shares."""
    by_line, by_path = {}, {}
    for rank, host in hosts.items():
        paths, lines = _sums(host)
        if not any(row["Calls"] for row in paths.values()):
            continue
        order = sorted(paths, key=lambda path: (-_weight(paths[path]), path))
        by_path[rank] = {path: paths[path] for path in order[:_KEPT]}
        left = [paths[path] for path in order[_KEPT:]]
        if left:
            by_path[rank][_OTHERS] = {n: _added(row[n] for row in left) for n in _NAMES}
        if any(lines):
            by_line[rank] = lines
    return _with_job(by_line), _with_job(by_path)


def _added(values):
    values = [*values]
    return UNKNOWN if None in values else sum(values)


def _with_job(by_rank):
    if len(by_rank) > 1:
        keys = {key: None for rows in by_rank.values() for key in rows}
        job = {}
        for key in keys:
            parts = [rows[key] for rows in by_rank.values() if key in rows]
            job[key] = {name: _added(part[name] for part in parts) for name in _NAMES}
        by_rank = {**by_rank, JOB: job}
    found = {}
    for rank, rows in by_rank.items():
        host = sum(row["Self Time(ns)"] for row in rows.values())
        device = sum(row["Device Time(ns)"] or 0 for row in rows.values())
        for key, row in rows.items():
            found[rank, key] = {
                **{name: row[name] for name in _NAMES},
                "Self Ratio(%)": percent(row["Self Time(ns)"], host),
                "Device Ratio(%)": percent(row["Device Time(ns)"], device),
            }
    return found
