"""Operations and bytes of operators from their shapes, by the formulas printed with the table; and
the units of AI cores that bound tasks.

Operators are those that captures hold. Peaks of devices are not in the trace.
"""

import json
import re
from collections import defaultdict
from itertools import pairwise
from math import prod

from .device import kernels
from .figures import UNKNOWN, Timed, added, percent
from .host import KNOWN_BY, typed

_BITS = {
    "double": 64, "long int": 64, "float": 32, "int": 32, "c10::Half": 16, "c10::BFloat16": 16,
    "short int": 16, "signed char": 8, "unsigned char": 8, "bool": 8, "c10::Float8_e4m3fn": 8,
    "c10::Float8_e4m3fnuz": 8, "c10::Float8_e5m2": 8,
}  # fmt: skip


class _Inputs:
    """Shapes, bits and values of an operator's inputs."""

    def __init__(self, args):
        self.dims, self.types, self.values = (
            _list(args.get(key)) for key in ("Input Dims", "Input type", "Concrete Inputs")
        )

    def size(self, index, n=None):
        """Bytes of an input, or of a number of elements of its type; unknown if the type is."""
        known = index < len(self.types) and self.types[index] in _BITS
        n = prod(self.dims[index]) if n is None else n
        return n * _BITS[self.types[index]] // 8 if known else UNKNOWN


def _list(said):
    return (json.loads(said) if isinstance(said, str) and said else said) or []


def _product(one, left, right, bias=None):
    rows, columns = one.dims[left], one.dims[right]
    n = prod(rows[:-1]) * columns[-1]
    assert rows[-1] == columns[-2], (rows, columns)
    flops = 2 * n * rows[-1] + (n if bias is not None else 0)
    out = one.size(left, n)
    out = 2 * n if out == n else out  # of 8 bits the result has 16
    more = [one.size(bias)] if bias is not None else []
    return "GEMM", flops, added(one.size(left), one.size(right), out, *more)


def _flash(one):
    """(batch, length, heads, size); causal is the ninth input."""
    (b, q, h, d), (_, k, _, _), (_, _, _, v) = one.dims[:3]
    if any(one.dims[3:5]):
        return "attention", UNKNOWN, UNKNOWN
    flops = 2 * b * h * q * k * (d + v) // (2 if one.values[8] == "True" else 1)
    return "attention", flops, added(*map(one.size, range(3)), one.size(0, b * q * h * v))


def _vectors(one):
    return [i for i, dims in enumerate(one.dims) if len(dims) == 1 and dims != [0]]


def _norm(one, operations, arrays, first=0):
    moved = added(*[one.size(first)] * arrays, *map(one.size, _vectors(one)))
    return "normalization", operations * prod(one.dims[first]), moved


def _root_mean_square(one, operations, arrays):
    """Arrays of the library's operator have the type of its inputs."""
    shaped = [i for i, dims in enumerate(one.dims) if len(dims) > 1]
    same = [i for i in shaped if one.dims[i] == one.dims[shaped[0]]][:arrays]
    sizes = [one.size(i) for i in same]
    sizes += [sizes[-1]] * (arrays - len(sizes))
    vectors = [i for i in _vectors(one) if one.dims[i][0] == one.dims[shaped[0]][-1]]
    flops = operations * prod(one.dims[shaped[0]])
    return "normalization", flops, added(*sizes, *map(one.size, vectors))


def _paged(one, lengths):
    """Queries are (tokens, heads, size), keys the next array with heads of that size; what has the
    shape of the queries and is not next to them is the result."""
    if lengths is None:
        return "attention", UNKNOWN, UNKNOWN
    arrays = [i for i, dims in enumerate(one.dims) if len(dims) > 2]
    first = arrays[0]
    heads, size = one.dims[first][-2:]
    keys = next(
        one.dims[i][-2] for i in arrays[1:]
        if one.dims[i][-1] == size and (i == first + 1 or one.dims[i] != one.dims[first])
    )  # fmt: skip
    looked = lengths["c_qk"] + lengths["g_qk"]
    moved = (lengths["c_q"] + lengths["g_q"]) * heads + (lengths["c_k"] + lengths["g_k"]) * keys
    flops = heads * size * (4 * looked - 2 * lengths["c_qq"])
    return "attention", flops, one.size(first, 2 * size * moved)


_KNOWN = {
    "aten::mm": lambda one, _: _product(one, 0, 1),
    "aten::bmm": lambda one, _: _product(one, 0, 1),
    "aten::addmm": lambda one, _: _product(one, 1, 2, 0),
    "aten::baddbmm": lambda one, _: _product(one, 1, 2, 0),
    "aten::_flash_attention_forward": lambda one, _: _flash(one),
    "aten::cudnn_batch_norm": lambda one, _: _norm(one, 5, 2),
    "aten::native_layer_norm": lambda one, _: _norm(one, 5, 2),
    "aten::cudnn_batch_norm_backward": lambda one, _: _norm(one, 9, 3, 1),
    "aten::native_layer_norm_backward": lambda one, _: _norm(one, 9, 3, 1),
    **dict.fromkeys(
        ("_C::rms_norm", "aiter::rms_norm", "aiter::rmsnorm", "fb::rms_norm"),
        lambda one, _: _root_mean_square(one, 4, 2),
    ),
    **dict.fromkeys(
        ("_C::fused_add_rms_norm", "aiter::add_rmsnorm", "aiter::rmsnorm2d_fwd_with_add_ck"),
        lambda one, _: _root_mean_square(one, 5, 4),
    ),
    "vllm::unified_attention_with_output": _paged,
    "sglang_profiler::attention_paged_attention_ragged_100": _paged,
    "vllm::moe_forward": lambda one, _: ("experts", UNKNOWN, UNKNOWN),  # the inner size is unknown
}
"""(kind, operations, bytes) of the operators of real captures."""

_AROUND = {
    "aten::linear", "aten::matmul", "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_flash_attention", "aten::batch_norm", "aten::layer_norm",
}  # fmt: skip
"""Operators that leave their work to one of these."""


# -- calls --------------------------------------------------------------------------------


def flops(ranks, hosts):
    """Calls of operators with equal inputs, with the kernels that each launched."""
    timed = Timed()
    for rank in ranks.values():
        for name, args, work, rows in calls(rank, hosts[rank.number]):
            key = (name, _text(args, "Input Dims"), _text(args, "Input type"), *work)
            timed.add(rank.number, key, sum(row.dur for row in rows), kernels=len(rows))
    names = ("Operator", "Input Shapes", "Input Types", "Kind", "FLOPs", "Bytes")
    found = timed.figures(names, kernels="Kernels")
    for row in found.values():
        ns = row["Total Time(ns)"] / row["Count"]
        rate, speed = (row[of] / ns if row[of] is not None and ns else None
                       for of in ("FLOPs", "Bytes"))  # fmt: skip
        row["Rate(TFLOP/s)"] = None if rate is None else rate / 1000
        row["Bandwidth(GB/s)"] = speed
        known = None not in (row["FLOPs"], row["Bytes"]) and row["Bytes"]
        row["Intensity(FLOP/B)"] = row["FLOPs"] / row["Bytes"] if known else None
    return {(key[0], *key[1:4]): row for key, row in found.items()}


def calls(rank, host):
    """(operator, arguments, (kind, operations, bytes), kernels) of every call on a GPU."""
    for name, args, at, rows in (
        () if host.fact.ascend else (*_replayed(rank, host), *_launched(rank, host))
    ):
        yield name, args, _KNOWN[name](_Inputs(args), _lengths(rank, at)), rows


def in_half(name, args):
    """Whether what an operator multiplies is all of 16 bits."""
    one = _Inputs(args)
    first = 1 if name in ("aten::addmm", "aten::baddbmm") else 0
    count = 2 if "mm" in name else 3
    if _KNOWN[name] is _paged:
        first = next(i for i, dims in enumerate(one.dims) if len(dims) > 2)
        count = 1
    return {"c10::Half", "c10::BFloat16"} >= {*(one.types[first : first + count] or [""])}


def _text(args, key):
    said = args.get(key, "")
    return said if isinstance(said, str) else json.dumps(said, separators=(",", ":"))


def _work(row):
    return row.cls in ("compute", "copy") and row.lane.layer == "device"


def _launched(rank, host):
    """By operator: the innermost one that is known; not those around another."""
    nest, found = host.nested(host.operators), {}
    known = {*_KNOWN, *_AROUND}
    around = set()
    for row, thread, call in host.launched:
        holder = nest.innermost(thread, call.start)
        while holder is not None and holder.name not in known:
            holder = nest.parent[id(holder)]
        if holder is None:
            continue
        outer = nest.parent[id(holder)]
        while outer is not None:
            around.add(id(outer))
            outer = nest.parent[id(outer)]
        if _work(row):
            found.setdefault(id(holder), (holder, []))[1].append(row)
    for key, (holder, rows) in found.items():
        if key not in around and holder.name in _KNOWN and holder.args.get("Input Dims"):
            yield holder.name, holder.args, holder.start, rows


def _replayed(rank, host):
    """Kernels of replayed graphs that state the operator, by replay and call."""
    found = defaultdict(list)
    for row, _, call in host.launched:
        said = row.args
        known = KNOWN_BY in said and said.get("operator") in _KNOWN and "operator call" in said
        if known and _work(row):
            found[call.start, id(call), str(said["operator call"])].append(row)
    for (at, *_), rows in found.items():
        rows.sort(key=lambda row: row.start)
        if rows[0].args.get("Input Dims"):
            yield rows[0].args["operator"], rows[0].args, at, rows


_DETAILED = re.compile(
    r"execute_\d+_context_\d+\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)"
    r"_generation_\d+\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)"
)
_LISTED = re.compile(r"(step|prefill|decode)\[(.*)\]")
_SUMS = ("c_q", "c_k", "c_qq", "c_qk", "g_q", "g_k", "g_qq", "g_qk")


def _lengths(rank, instant):
    """The requests that the range of the pass around an instant names."""
    found = None
    for row in rank.on("host"):
        if row.start <= instant < row.end:
            found = _said(row.name) or found
    return found


def _said(name):
    if match := _DETAILED.match(name):
        return dict(zip(_SUMS, map(int, match.groups()), strict=True))
    match = _LISTED.fullmatch(name)
    if match is None or "sqsk=" not in name:
        return None
    own, found = "c_" if match[1] == "prefill" else "g_", dict.fromkeys(_SUMS, 0)
    for pair in re.split(r"[\s,]+", match[2]):
        key, _, value = pair.partition("=")
        key = "sq" if key == "tok" else key
        prefix = key[:2] if key[:2] in ("c_", "g_") else own
        if key.removeprefix(prefix) in ("sq", "sk", "sqsq", "sqsk") and value.isdigit():
            found[prefix + key.removeprefix(prefix).replace("s", "")] = int(value)
    return found


# -- grouped products ---------------------------------------------------------------------

_GROUPED = re.compile(
    r"aten::_(scaled_)?grouped_mm|(?!aten::)\w[\w:]*::(\w*_)?(group(ed)?|moe|segment)_(mm|gemm)\w*"
)


def multiplied_rows(row):
    """Rows of a grouped product of the host, each with the matrix of its group; None of others."""
    dims = _list(row.args.get("Input Dims")) if _GROUPED.fullmatch(row.name) else []
    matrices = [one for one in dims if isinstance(one, list) and len(one) > 1]
    for left, right in pairwise(matrices):
        if len(left) == 2 and len(right) == 3:
            return left[0]
    return None


# -- units of AI cores --------------------------------------------------------------------

_UNITS = {"mac": "Cube", "vec": "Vector", "scalar": "Scalar", "mte1": "MTE1", "mte2": "MTE2",
          "mte3": "MTE3", "fixpipe": "FixPipe"}  # fmt: skip


def bounds(ranks, hosts):
    """Shares of the time of cores in which their units work, from the columns of the profiler."""
    timed = Timed()
    for rank in ranks.values():
        rows = kernels(rank, "compute")
        cores = {id(row): [_us(row, f"{core}_time(us)") for core in ("aicore", "aiv")]
                 for row in rows}  # fmt: skip
        kinds = typed(rank, hosts[rank.number]) if any(map(any, cores.values())) else {}
        for row in rows:
            if kinds and any(ns is not None for ns in cores[id(row)]):
                sums = {name: sum(_us(row, f"{core}{unit}_time(us)") or 0
                                  for core in ("", "aic_", "aiv_"))
                        for unit, name in _UNITS.items()}  # fmt: skip
                timed.add(
                    rank.number, kinds[id(row)], row.dur, core=_added_us(row),
                    blocks=int(str(row.args.get("Block Num") or 0)), **sums,
                )  # fmt: skip
    extra = {name: name for name in (*_UNITS.values(), "core", "blocks")}
    found = timed.figures(("OP Type", "Core Type"), **extra)
    for row in found.values():
        shares = {name: percent(row[name], row["core"]) or 0 for name in _UNITS.values()}
        most = max(shares, key=shares.get)
        row |= {f"{name}(%)": percent(row[name], row["core"]) for name in shares}
        row["Bound"] = most if shares[most] >= 80 else "none"
        row["Block Dim"] = row["blocks"] / row["Count"]
    return found


def _added_us(row):
    return sum(_us(row, f"{core}_time(us)") or 0 for core in ("aicore", "aiv"))


def _us(row, key):
    """A time as whole ns; None where it is not stated."""
    said = str(row.args.get(key, ""))
    return round(float(said) * 1000) if said.replace(".", "", 1).isdigit() else None
