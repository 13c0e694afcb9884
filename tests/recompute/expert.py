"""Rows that ranks exchange, from the split sizes that collectives state."""

import json
from collections import defaultdict

from .device import kernels
from .figures import percent


def peers(ranks):
    """By rank, group and peer: operations, rows sent, received, and received but not returned."""
    found = defaultdict(lambda: [0, 0, 0, 0])
    for rank in ranks.values():
        for exchanges in (_of_device(rank), _of_host(rank)):
            exchanges = [exchange for exchange in exchanges if all(exchange[1:])]
            waiting = []
            for group, sent, taken in exchanges:
                back = (group, taken, sent) in waiting
                if back:
                    waiting.remove((group, taken, sent))
                else:
                    waiting.append((group, sent, taken))
                for peer, (out, rows) in enumerate(zip(sent, taken, strict=False)):
                    sums = found[rank.number, group, peer]
                    for i, value in enumerate((1, out, rows, 0 if back else rows)):
                        sums[i] += value
            if exchanges:
                break
    return {k: dict(zip(_SUMS, v, strict=True)) for k, v in found.items()}


_SUMS = ("Count", "Sent", "Received", "Routed")


def _of_device(rank):
    for row in kernels(rank, "comm"):
        parts = [_split(row.args.get(key)) for key in ("In split size", "Out split size")]
        yield (row.lane.group or row.lane.name, *parts)


def _of_host(rank):
    for row in rank.rows:
        if row.name == "c10d::alltoall_base_" and row.lane.layer == "host":
            inputs = _list(row.args.get("Concrete Inputs")) or []
            yield ("", *(_split(inputs[i]) if len(inputs) > 4 else None for i in (4, 3)))


def _list(said):
    try:
        found = json.loads(said) if isinstance(said, str) else said
    except ValueError:
        return None
    return found if isinstance(found, list) else None


def _split(said):
    found = _list(said)
    return found if found and all(type(n) is int for n in found) else None


def loads(ranks):
    """Sums over the peers, and the share of the mean of the group."""
    found = {}
    for (rank, group, _), row in peers(ranks).items():
        sums = found.setdefault((rank, group), dict.fromkeys(("Peers", *_SUMS), 0))
        sums["Peers"] += 1
        sums["Count"] = max(sums["Count"], row["Count"])
        for name in _SUMS[1:]:
            sums[name] += row[name]
    for (_, group), sums in found.items():
        every = [one["Routed"] for (_, of), one in found.items() if of == group]
        sums["Load(%)"] = percent(sums["Routed"] * len(every), sum(every))
    return found
