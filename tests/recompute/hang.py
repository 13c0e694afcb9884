"""Where a job hangs, from the records of flight recorders in the written trace."""

import json
from collections import defaultdict


def line(ranks):
    """The headline of a job that hangs in a collective; "" if none does.

    A rank waits in a collective that its recorder never saw end. The first at which ranks of a
    group are not alike is where it hangs: who waits, and who issued something else or nothing.
    """
    groups = defaultdict(lambda: defaultdict(dict))
    dumped = set()
    for rank in ranks.values():
        for row in rank.rows:
            if "collective_seq_id" in row.args:
                dumped.add(rank.number)
                if not row.args.get("is_p2p"):
                    said = row.args["process_group"]
                    members = tuple(json.loads(row.args.get("Process Group Ranks", "[]")))
                    number = row.args["collective_seq_id"]
                    groups[(*said, members)][rank.number][number] = row
    lines = [_of_group(*key, issued, dumped) for key, issued in groups.items()]
    return next(filter(None, lines), "")


def _of_group(name, purpose, members, issued, dumped):
    own = {rank: rows for rank, rows in issued.items() if not members or rank in members}
    waits = [n for rows in own.values() for n, row in rows.items() if "unfinished" in row.args]
    if not waits:
        return ""
    number = min(*waits, *(max(rows) + 1 for rows in own.values()))
    sides = defaultdict(list)
    for rank, rows in sorted(own.items()):
        sides[rows[number].name.rpartition(":")[2] if number in rows else ""].append(rank)
    (usual, waiting), *others = sorted(sides.items(), key=lambda one: (not one[0], -len(one[1])))
    waits = "waits" if len(waiting) == 1 else "wait"
    found = f"Hang: {_ranks(waiting)} {waits} in {usual}, operation {number} of group {name}"
    found += f" ({purpose})"
    for other, who in others:
        did = f"issued {other}" if other else f"{'has' if len(who) == 1 else 'have'} not issued it"
        found += f"; {_ranks(who)} {did}"
    undumped = sorted(set(members) - dumped)
    if others:
        return found
    if not members:
        return f"{found}; its members are not recorded"
    return f"{found}; " + (
        f"no dump of {_ranks(undumped)}" if undumped else "all members are in it"
    )


def _ranks(ranks):
    runs = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ",".join("-".join(map(str, sorted({run[0], run[-1]}))) for run in runs)
    return f"rank{'s' * (len(ranks) > 1)} {text}"
