"""Headings are for people: tables, rules and passes decide by the columns of tracks."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from golden_cases import case_folder
from paths import ROOT

import traceconv
from traceconv.analysis.tables.catalog import TABLES, of_rank
from traceconv.core.model import Trace, arranged
from traceconv.passes import compose

CASES = (
    "kineto/replay_two_gpus",
    "kineto/two_ranks",
    "nsight/other_processes",
    "nsight/training",
    "rocprof/schema_3",
    "rpd/two_processes",
    "trace_view/demo",
    "ascend_db/two_devices",
    "xla_json/devices",
    "nccl_inspector/verbose",
)


def renamed(trace: Trace) -> Trace:
    """The same rank with headings in another language; tracks keep their order on screen."""
    tracks = tuple(
        msgspec.structs.replace(
            track,
            name=track.name if track.is_counter else f"n{number:04}",
            group=f"g {track.group}" if track.group else "",
            title=f"t {track.heading}",
        )
        for number, track in enumerate(trace.tracks)
    )
    return arranged(replace(trace, tracks=tracks))


def figures(trace: Trace) -> dict[str, list[list[object]]]:
    """What every table says of a rank, but for texts: these may be headings."""
    for one in compose("detail"):
        trace = one(trace)
    found = {}
    for name in TABLES:
        columns = of_rank(trace, name)
        numbers = [c for c in columns.values() if isinstance(c, np.ndarray) and c.dtype != object]
        found[name] = sorted(map(repr, zip(*(c.tolist() for c in numbers), strict=True)))
    return found


@pytest.mark.parametrize("case", CASES)
def test_other_headings_change_no_figure(case):
    """Not one number of one table, on captures of every family."""
    folder = case_folder(ROOT / "golden" / case) / "input"
    for trace in traceconv.open(folder).traces():
        assert figures(renamed(trace)) == figures(trace)
