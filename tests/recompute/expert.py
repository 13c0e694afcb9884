"""Rows that ranks exchange, from the split sizes that collectives state."""

import json
from collections import defaultdict

from .device import kernels
from .figures import percent
from .host import typed
from .work import multiplied_rows


def _exchanges(rank):
    """(row, group, sent, taken, whether it returns what another brought), in time order."""
    for exchanges in (_of_device(rank), _of_host(rank)):
        exchanges = [exchange for exchange in exchanges if all(exchange[2:])]
        waiting, found = [], []
        for row, group, sent, taken in sorted(exchanges, key=lambda one: one[0].start):
            back = (group, taken, sent) in waiting
            if back:
                waiting.remove((group, taken, sent))
            else:
                waiting.append((group, sent, taken))
            found.append((row, group, sent, taken, back))
        if found:
            return found
    return []


def peers(ranks):
    """By rank, group and peer: operations, rows sent, received, and received but not returned."""
    found = defaultdict(lambda: [0, 0, 0, 0])
    for rank in ranks.values():
        for _, group, sent, taken, back in _exchanges(rank):
            for peer, (out, rows) in enumerate(zip(sent, taken, strict=False)):
                sums = found[rank.number, group, peer]
                for i, value in enumerate((1, out, rows, 0 if back else rows)):
                    sums[i] += value
    return {k: dict(zip(_SUMS, v, strict=True)) for k, v in found.items()}


_SUMS = ("Count", "Sent", "Received", "Routed")


def _of_device(rank):
    for row in kernels(rank, "comm"):
        parts = [_split(row.args.get(key)) for key in ("In split size", "Out split size")]
        yield (row, row.lane.group or row.lane.name, *parts)


def _of_host(rank):
    for row in rank.rows:
        if row.name == "c10d::alltoall_base_" and row.lane.layer == "host":
            inputs = _list(row.args.get("Concrete Inputs")) or []
            yield (row, "", *(_split(inputs[i]) if len(inputs) > 4 else None for i in (4, 3)))


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


# -- layers -------------------------------------------------------------------------------


def layers(ranks, hosts, every):
    """Rows that experts get, by the module that calls for them or the number in the step."""
    sums = defaultdict(lambda: [0, 0])
    for rank in ranks.values():
        host, steps = hosts[rank.number], every[rank.number].steps
        modules = host.nested(host.modules())
        calls = {id(row): (thread, call.start) for row, thread, call in host.launched}
        exchanged = (
            ("exchange", row, group, sum(taken))
            for row, group, _, taken, back in _exchanges(rank) if not back
        )  # fmt: skip
        seen = defaultdict(int)
        for source, row, group, n in (*exchanged, *_multiplied(rank, host)):
            thread, at = calls.get(id(row), (host.thread_of(row), row.start))
            number = row.step if row.step >= 0 else _step_at(steps, at)
            seen[source, group, number] += 1
            call = modules.innermost(thread, at)
            layer = f"{source} {seen[source, group, number]}" if number >= 0 else ""
            layer = call.name.removeprefix("nn.Module: ") if call else layer
            for name in ("all layers", layer) if layer else ("all layers",):
                one = sums[rank.number, source, group, name]
                one[0] += 1
                one[1] += n
    found = {key: {"Count": count, "Rows": n} for key, (count, n) in sums.items()}
    for (_, *of), row in found.items():
        alike = [other["Rows"] for (_, *key), other in found.items() if key == of]
        row["Load(%)"] = percent(row["Rows"] * len(alike), sum(alike))
    return found


def _step_at(steps, instant):
    begun = [step for step in steps if step.start <= instant]
    return begun[-1].number if begun and instant < begun[-1].end else -1


def _multiplied(rank, host):
    """Grouped products: tasks of NPUs by type, operators of the host by name."""
    if host.fact.ascend:
        types = typed(rank, host)
        for row in kernels(rank, "compute"):
            sizes = str(row.args.get("Input Shapes", "")).strip('"').split(";")[0].split(",")
            if types[id(row)][0].startswith("GroupedMatmul") and len(sizes) == 2:
                yield "product", row, "", int(sizes[0])
    else:
        for row in rank.on("host"):
            n = multiplied_rows(row)
            if n is not None:
                yield "product", row, "", n
