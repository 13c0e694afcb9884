"""Rows that ranks exchange, from the split sizes that collectives state."""

import json
from collections import defaultdict

from .device import kernels
from .figures import percent


def peers(ranks):
    """By rank, group and peer: operations, rows sent and received."""
    found = defaultdict(lambda: [0, 0, 0])
    for rank in ranks.values():
        for row in kernels(rank, "comm"):
            parts = [_split(row.args.get(key)) for key in ("In split size", "Out split size")]
            if all(parts):
                for peer, (sent, taken) in enumerate(zip(*parts, strict=False)):
                    sums = found[rank.number, row.lane.group or row.lane.name, peer]
                    for i, value in enumerate((1, sent, taken)):
                        sums[i] += value
    return {k: dict(zip(("Count", "Sent", "Received"), v, strict=True)) for k, v in found.items()}


def _split(said):
    try:
        found = json.loads(said) if isinstance(said, str) else said
    except ValueError:
        return None
    return found if isinstance(found, list) and all(type(n) is int for n in found) else None


def loads(ranks):
    """Sums over the peers, and the share of the mean of the group."""
    found = {}
    for (rank, group, _), row in peers(ranks).items():
        sums = found.setdefault((rank, group), {"Peers": 0, "Count": 0, "Sent": 0, "Received": 0})
        sums["Peers"] += 1
        sums["Count"] = max(sums["Count"], row["Count"])
        sums["Sent"] += row["Sent"]
        sums["Received"] += row["Received"]
    for (_, group), sums in found.items():
        every = [one["Received"] for (_, of), one in found.items() if of == group]
        sums["Load(%)"] = percent(sums["Received"] * len(every), sum(every))
    return found
