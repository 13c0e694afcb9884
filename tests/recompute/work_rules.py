"""Figures of the rules about how operators compute and how data is sent, from rows."""

import re
from collections import defaultdict
from statistics import median

from . import waiting, work
from .device import kernels
from .figures import percent
from .host import text_of, typed
from .intervals import Length, common, union

_CUBE = re.compile(r"(?:Batch)?MatMul\w*|GroupedMatmul\w*")
_SINGLE = {"FLOAT", "DT_FLOAT", "FP32"}
_NONE = {"NULL", "N/A", ""}
_FORMS = {"argmin", "cast", "equal", "index", "indexput", "mul", "nonzero", "tensorequal"}
_OFTEN = 20
_CORES = ("ai core freq", "gpc clock", "gpc freq", "sm clock", "sm freq", "gfx clock", "gfx freq",
          "graphics clock", "graphics freq", "shader clock", "shader freq", "sclk clock",
          "sclk freq")  # fmt: skip


def _longest(rows):
    return sorted((row.dur for row in rows), reverse=True)[:3]


def rules(rank, host, known):
    """(rule, where, figures) of one rank; of what its steps are divided by, 1 if there are none."""
    steps = max(len(known.measured()), 1)
    if not known.fact.partial:
        rows = kernels(rank, "compute")
        yield from _single(rank, host, rows, steps)
        yield from _uneven(rank, host, rows, steps)
        if host.fact.ascend:
            yield from _ai_cpu(rank, host, rows, steps)
            yield from _slow_shapes(rank, host, rows, steps)
        yield from _products(rank, host, rows, steps)
    yield from _again(rank, known, steps)


def _share(rule, found, rows, steps):
    spent, every = (sum(row.dur for row in some) for some in (found, rows))
    return rule, "", {
        "value": percent(spent, every), "saves": spent / steps, "count": len(found),
        "compute_ns": every, "slices": _longest(found),
    }  # fmt: skip


# -- operators ----------------------------------------------------------------------------


def single(name):
    """Whether a library's kernel multiplies in single precision without units for matrices."""
    low = name[:500].lower()
    if low.startswith("cijk_") and "_sb_" in re.match(r"\w*", low)[0]:
        return True
    if "tensorop" in low or "tf32" in low:
        return False
    words = re.split(r"[^a-z]+", low)
    if "sgemm" in words or re.match(r"(?:.* )?gemm\w*_kernel<float,", low):
        return True
    types = "f32f32_f32f32_f32" in low and "tensor_op" not in low
    return types and not {"gemm", "fprop", "dgrad", "wgrad"}.isdisjoint(words)


def _single(rank, host, rows, steps):
    if not rows:
        return
    if not host.fact.ascend:
        yield _share("full-precision", [row for row in rows if single(row.name)], rows, steps)
        return
    types = typed(rank, host)
    said = {
        id(row): text_of(row.args.get("Input Data Types", "")).strip('"').upper().split(";")
        for row in rows if _CUBE.fullmatch(types[id(row)][0])
    }  # fmt: skip
    if any(one != [""] for one in said.values()):
        found = [
            row for row in rows if id(row) in said and said[id(row)][0] in _SINGLE
            and all(one in _SINGLE | _NONE for one in said[id(row)])
        ]  # fmt: skip
        yield _share("full-precision", found, rows, steps)


def _uneven(rank, host, rows, steps):
    """What calls of one name and shape take beyond one and a half of their median."""
    shapes = {}
    if host.fact.ascend:
        for row in rows:
            shapes[id(row)] = text_of(row.args.get("Input Shapes", "")).strip('"')
    else:
        nest = host.nested(host.operators)
        for row, thread, call in host.launched:
            holder = nest.innermost(thread, call.start)
            args = holder.args if holder is not None else {}
            said = text_of(args.get("Input Dims", "")) or text_of(args.get("input_shapes", ""))
            shapes[id(row)] = said
    groups = defaultdict(list)
    for row in rows:
        if shapes.get(id(row)):
            groups[row.name, shapes[id(row)]].append(row)
    tails = {}
    for key, mine in groups.items():
        if len(mine) >= _OFTEN:
            usual = int(1.5 * median(row.dur for row in mine))
            tails[key] = sum(max(row.dur - usual, 0) for row in mine)
    worst = max(tails, key=tails.get, default=None)
    if worst is None or not tails[worst]:
        return
    lengths, every = [row.dur for row in groups[worst]], sum(row.dur for row in rows)
    yield "uneven-operator", worst[0][:200], {
        "value": percent(tails[worst], every), "calls": len(lengths), "compute_ns": every,
        "median_ns": round(median(lengths)), "longest_ns": max(lengths),
        "all_tails_ns": sum(tails.values()), "saves": tails[worst] / steps,
        "slices": _longest(groups[worst]),
    }  # fmt: skip


def _ai_cpu(rank, host, rows, steps):
    """Operators on AI CPUs that also run elsewhere, are of double precision, or known to have
    another form; not those that fetch input."""
    types = typed(rank, host)
    fetching = {id(row) for row in waiting.fetches(rank)}
    here = [row for row in rows if id(row) not in fetching]
    if not any(types[id(row)][1] for row in here):
        return
    kind = {id(row): re.sub("V[23]$", "", types[id(row)][0] or "").lower() for row in here}
    inputs = {id(row): text_of(row.args.get("Input Data Types", "")) for row in here}
    slow = [row for row in here if re.fullmatch("(KERNEL_)?AI_?CPU", types[id(row)][1] or "")]
    if slow and not any(kind[id(row)] or inputs[id(row)] for row in slow):
        return
    ids = {id(row) for row in slow}
    cores = {kind[id(row)] for row in here if id(row) not in ids and types[id(row)][1]}
    forms = (_FORMS | cores) - {""}
    found = [
        row for row in slow if kind[id(row)] in forms or {"DOUBLE", "DT_DOUBLE", "FLOAT64",
        "DT_FLOAT64"} & set(re.split(r"[^A-Z0-9_]+", inputs[id(row)].upper()))
    ]  # fmt: skip
    rule, where, figures = _share("ai-cpu", found, here, steps)
    if others := sum(row.dur for row in slow) - sum(row.dur for row in found):
        figures["without_other_form_ns"] = others
    yield rule, where, figures


_HALF = {"Half", "BFloat16", "FLOAT16", "BF16", "BFLOAT16"}
PEAK, BANDWIDTH = 100.0, 1000.0
"""What the device is said to reach: 10^12 operations and 10^9 bytes per second."""


def _plain_type(name):
    return name.removeprefix("c10::").removeprefix("DT_")


def _products(rank, host, rows, steps):
    """Products of two matrices in half precision that take 10 us and more, and attention."""
    if host.fact.ascend:
        yield from _reached("matmul-efficiency", _stated_products(rank, host, rows), rows, steps)
        return
    for rule, kind in (("matmul-efficiency", "GEMM"), ("attention-efficiency", "attention")):
        calls = (
            (sum(row.dur for row in mine), min(mine, key=lambda row: row.start), *figures)
            for name, args, (of, *figures), mine in work.calls(rank, host)
            if of == kind and all(figures) and work.in_half(name, args)
        )
        yield from _reached(rule, calls, rows, steps)


def _reached(rule, calls, rows, steps):
    """What operators take, of what their operations and bytes need."""
    spent = least = operations = 0.0
    firsts = []
    for ns, first, flops, n_bytes in calls:
        if ns >= 10_000:
            spent += ns
            operations += flops
            least += max(flops / (PEAK * 1e3), n_bytes / BANDWIDTH)
            firsts.append(first)
    if firsts:
        yield rule, "", {
            "value": 100 * least / spent, "reached_tflops": operations / spent / 1e3,
            "share_percent": percent(spent, sum(row.dur for row in rows)), "memory_gbs": BANDWIDTH,
            "peak_tflops": PEAK, "saves": max(spent - least, 0.0) / steps,
            "slices": _longest(firsts),
        }  # fmt: skip


def _product(m, k, n, each=1):
    """Operations of so many products, and bytes of their matrices."""
    return 2 * each * m * k * n, 2 * each * (m * k + k * n + m * n)


def _stated_products(rank, host, rows):
    types = typed(rank, host)
    for row in rows:
        said = [text_of(row.args.get(key, "")).strip('"') for key in
                ("Input Shapes", "Output Shapes", "Input Data Types", "Input Formats")]  # fmt: skip
        if types[id(row)][0] not in ("MatMul", "MatMulV2", "MatMulV3") or not all(said):
            continue
        kinds, forms = said[2].upper().split(";"), said[3].split(";")
        plain = len(kinds) > 1 and {_plain_type(kind) for kind in kinds[:2]} <= _HALF
        shapes = [one.split(",") for one in (*said[0].split(";")[:2], said[1])]
        if not plain or set(forms[:2]) != {"ND"} or any(len(one) != 2 for one in shapes):
            continue
        (a, b), (c, d), (m, n) = ([int(size) for size in one] for one in shapes)
        for inner in {a, b} & {c, d}:
            if a * b == m * inner and c * d == inner * n:
                yield row.dur, row, *_product(m, inner, n)
                break


def _slow_shapes(rank, host, rows, steps):
    """Shapes of which each dimension is at most that of another, on which an operator takes half
    as long again."""
    types, groups, shown = typed(rank, host), defaultdict(lambda: defaultdict(list)), 0
    for row in rows:
        said = [text_of(row.args.get(key, "")).strip('"') for key in
                ("Input Shapes", "Output Shapes", "Input Data Types", "Input Formats",
                 "Output Formats")]  # fmt: skip
        if said[0] and said[1] and types[id(row)][0]:
            shape = f"{said[0]} -> {said[1]}"
            form = re.sub(r"\d{1,12}", "#", shape)
            groups[types[id(row)][0], *said[2:], form][shape].append(row.dur)
            shown += row.dur
    lost, worst = 0.0, (0.0, "", {})
    for (kind, *_), shapes in groups.items():
        medians = {one: median(ns) for one, ns in shapes.items() if len(ns) >= 5}
        kept = sorted(medians, key=lambda one: -len(shapes[one]) * medians[one])[:64]
        sizes = {one: [int(n) for n in re.findall(r"\d{1,12}", one)] for one in kept}
        for one in kept:
            larger = [
                medians[other] for other in kept
                if other != one and all(map(int.__le__, sizes[one], sizes[other]))
            ]  # fmt: skip
            fast = min(larger, default=medians[one])
            if medians[one] > 1.5 * fast:
                more = len(shapes[one]) * (medians[one] - fast)
                lost += more
                worst = max(worst, (more, kind, {
                    "median_ns": round(medians[one]), "calls": len(shapes[one]),
                    "larger_median_ns": round(fast), "slices": sorted(shapes[one])[:-4:-1],
                }), key=lambda item: item[0])  # fmt: skip
    if lost:
        yield "slow-shape", worst[1], {
            **worst[2], "value": percent(lost, shown), "compute_ns": shown, "saves": lost / steps,
        }  # fmt: skip


# -- clocks -------------------------------------------------------------------------------


def clocks(ranks, every):
    """((rule, rank, counter), figures): the drop from the highest clock at which any rank computes
    for a hundredth of its time."""
    known = {number: of for number in ranks if (of := _speeds(ranks[number], every[number]))}
    best = defaultdict(float)
    for of in known.values():
        for name, (spent, _) in of.items():
            enough = 0.01 * sum(spent.values())
            fast = [speed for speed, ns in spent.items() if ns >= enough]
            best[name] = max([best[name], *fast])
    for number, of in known.items():
        for name, (spent, steps) in of.items():
            if not best[name]:
                continue
            ns = sum(spent.values())
            mean = sum(min(speed, best[name]) * t for speed, t in spent.items()) / ns
            lost = sum(t * (1 - min(speed, best[name]) / best[name]) for speed, t in spent.items())
            yield ("frequency-drop", number, name), {
                "value": 100 * lost / ns, "best": best[name], "mean": mean, "computing_ns": ns,
                "lowest": min(min(spent), best[name]), "ranks": len(known), "saves": lost / steps,
            }  # fmt: skip


def _speeds(rank, known):
    """Computing by speed, and the number of steps, by counter."""
    steps = known.measured()
    if not steps or known.fact.partial or len(known.sets) != 1:
        return {}
    [sets], [recorded] = known.sets.values(), known.recorded.values()
    spans = union(step.window for step in steps)
    computing = Length(common(common(sets.get("computing", []), recorded), spans))
    samples = defaultdict(list)
    for lane, at, value in rank.samples:
        name = lane.name.lower().replace("_", " ")
        if value > 0 and (name == "sclk" or name.startswith(_CORES)):
            samples[lane.name].append((at, float(value)))
    found = {}
    for name, rows in samples.items():
        rows.sort(key=lambda pair: pair[0])
        ends = [at for at, _ in rows[1:]] + [max([rows[-1][0], *(end for _, end in spans)])]
        spent = defaultdict(int)
        for (at, speed), end in zip(rows, ends, strict=True):
            if ns := computing.within(at, end):
                spent[speed] += ns
        if spent:
            found[name] = spent, len(steps)
    return found


# -- communication ------------------------------------------------------------------------


def unaligned(links, least=64_000, enough=0.8):
    """(rule, transport, figures): packages of no multiple of 512 bytes that are slower than all
    aligned ones of at most their size allow; ``links``: {transport: {bytes: (count, ns)}}."""
    for link, sizes in links.items():
        if "RDMA" in link.upper() or "ROCE" in link.upper():
            continue
        speed = {size: size * count / time for size, (count, time) in sizes.items()}
        lost, slow, best = 0.0, [], 0.0
        for size in sorted(sizes):
            reached = max((v for n, v in speed.items() if n % 512 == 0 and n <= size), default=0.0)
            if size % 512 and size >= least and speed[size] < enough * reached:
                slow.append(size)
                best = max(best, reached)
                lost += sizes[size][1] - size * sizes[size][0] / reached
        if slow:
            time = sum(sizes[size][1] for size in slow)
            yield "unaligned-packets", link, {
                "value": percent(time, sum(ns for _, ns in sizes.values())), "saves": lost,
                "packages": sum(count for count, _ in sizes.values()), "aligned_gbs": best,
                "not_aligned_packages": sum(sizes[size][0] for size in slow),
                "smallest_bytes": slow[0],
                "not_aligned_gbs": sum(size * sizes[size][0] for size in slow) / time,
            }  # fmt: skip


def _again(rank, known, steps):
    """Collectives that were carried out again, and transfers over RDMA."""
    if "RDMA" in known.fact.stated.packages():
        return
    said = [row for row in rank.rows if row.slice and row.cls == "comm" and "retry" in row.args]
    again = [row for row in said if row.args["retry"] == "yes"]
    rdma = []
    for row in rank.rows:
        if row.slice and row.cls == "comm_task":
            transport, link = (str(row.args.get(k, "")).upper() for k in ("transport type",
                                                                          "link type"))  # fmt: skip
            if "RDMA" in transport or "RDMA" in link or "ROCE" in link:
                rdma.append(row)
    longest = max((row.dur for row in rdma), default=0)
    figures = {"operations": len(said), "again": len(again), "transfers": len(rdma),
               "rdma_longest_ns": longest}  # fmt: skip
    if again:
        saves = sum(row.dur for row in again) / steps
        yield "retransmission", "", figures | {"value": len(again), "saves": saves,
                                               "slices": _longest(again)}  # fmt: skip
    elif rdma:
        yield "retransmission", "", figures | {"value": longest / 1e9, "slices": _longest(rdma)}
