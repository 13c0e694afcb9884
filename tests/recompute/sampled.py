"""Counters by step, where a value holds until the next sample: clocks, networks and links."""

import re
from collections import defaultdict

from .figures import UNKNOWN

_CLOCK = re.compile(r"freq|clock|[sm]clk|power|voltage|temperature|\btemp\b", re.I)
_CLOCK_UNITS = {"MHz", "GHz", "Hz", "W", "mW", "°C", "C", "V", "mV"}
_LINK = re.compile(
    r"\bnic\b|\broce\b|infiniband|\bib\b|rdma|nvlink|pcie|hccs|xgmi|\bsio\b|\bub\b|network"
    r"|ethernet",
    re.I,
)


def _clock(lane):
    return lane.unit in _CLOCK_UNITS or (lane.unit != "%" and bool(_CLOCK.search(lane.name)))


def _link(lane):
    return not lane.kind and any(
        _LINK.search(text) for text in (lane.heading, lane.group, lane.name)
    )


def frequency(ranks, every):
    """Of clocks, power and temperature."""
    return list(_rows(ranks, every, _clock))


def network(ranks, every):
    """Of networks and links."""
    return list(_rows(ranks, every, _link))


def _rows(ranks, every, wanted):
    for rank in ranks.values():
        series = defaultdict(list)
        for lane, at, value in rank.samples:
            if wanted(lane):
                series[lane].append((at, value))
        steps = [(step.number, step.start, step.end) for step in every[rank.number].measured()]
        for lane, samples in series.items():
            for number, start, end in steps or [(-1, *_span(rank))]:
                pieces = _held(samples, start, end)
                if pieces:
                    key = (rank.number, number if number >= 0 else UNKNOWN,
                           lane.group or lane.heading, lane.name)  # fmt: skip
                    yield key, _figures(samples, pieces, start, end, lane.unit)


def _span(rank):
    starts = [row.start for row in rank.rows] + [at for _, at, _ in rank.samples]
    ends = [row.end for row in rank.rows] + [at for _, at, _ in rank.samples]
    return min(starts), max(ends)


def _held(samples, start, end):
    """(length, value) of every value in a span."""
    nexts = [at for at, _ in samples[1:]] + [float("inf")]
    return [
        (min(until, end) - max(at, start), value)
        for (at, value), until in zip(samples, nexts, strict=True)
        if at < end and until > start
    ]  # fmt: skip


def _figures(samples, pieces, start, end, unit):
    values, time = [value for _, value in pieces], sum(length for length, _ in pieces)
    mean = sum(length * value for length, value in pieces) / time if time else None
    return {
        "Unit": unit or "", "Samples": sum(start <= at < end for at, _ in samples),
        "Min": min(values), "Max": max(values),
        "Mean": sum(values) / len(values) if mean is None else mean,
    }  # fmt: skip
