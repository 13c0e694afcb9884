"""Clocks: which offset each rank gets, when it is refused, and the one place that adds it."""

import json
from pathlib import Path

import numpy as np
import pytest

import traceconv
from traceconv.alignment.plan import plan, shift
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX, Anchor, Domain
from traceconv.core.errors import ClockError, SourceError
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource
from traceconv.passes.attribution import attribution
from traceconv.passes.steps import steps

UNIX = 1_692_340_024_324_979_000
BOOT = 56_579_931_060_630


def _capture(rank, clock=None, host="a"):
    source = FileSource(Path("x"), f"p{rank}")
    return Capture("msprof", source, ("x",), rank=rank, clock=clock, host=host, label=f"p{rank}")


def _monotonic(shift_ns=0):
    return Anchor(Domain.MONOTONIC, BOOT, UNIX + shift_ns, "start_info.0")


def _offsets(found):
    return {rank: one.offset_ns for rank, one in found.offsets.items()}


def test_anchors_lead_to_unix_time():
    """What is added is Unix minus local; the evidence is named."""
    found = plan([_capture(0, _monotonic())])
    assert (found.offset_ns(0), found.method) == (UNIX - BOOT, "meta")
    assert found.offsets[0].evidence == "start_info.0"


def test_unix_stamps_stay():
    """A capture that is on the shared clock is not moved."""
    found = plan([_capture(0, Anchor(Domain.UNIX)), _capture(1, Anchor(Domain.UNIX), "b")])
    assert (_offsets(found), len(found.issues)) == ({0: 0, 1: 0}, 0)


def test_captures_of_one_host_share_its_clock():
    """The first anchor counts for all; how far the others disagree is told."""
    found = plan([_capture(0, _monotonic()), _capture(1, _monotonic(700))])
    assert _offsets(found) == {0: UNIX - BOOT, 1: UNIX - BOOT}
    assert found.offsets[1].spread_ns == 700


def test_hosts_have_clocks_of_their_own():
    """Two hosts booted at different times."""
    found = plan([_capture(0, _monotonic()), _capture(1, _monotonic(700), "b")])
    assert _offsets(found) == {0: UNIX - BOOT, 1: UNIX - BOOT + 700}


def test_unknown_hosts_are_not_one_host():
    """Without a host name every capture relies on its own anchor."""
    found = plan([_capture(0, _monotonic(), ""), _capture(1, _monotonic(700), "")])
    assert found.offset_ns(1) - found.offset_ns(0) == 700


def test_a_monotonic_capture_without_a_pair_shares_its_hosts_clock():
    """It is the same physical clock, so nothing is assumed."""
    found = plan([_capture(0, _monotonic()), _capture(1, Anchor(Domain.MONOTONIC))])
    assert (found.offset_ns(1), len(found.issues)) == (UNIX - BOOT, 0)


def test_one_hosts_clock_is_enough_for_its_ranks():
    """All stamps of one monotonic clock agree, though nobody knows the date."""
    found = plan([_capture(0, Anchor(Domain.MONOTONIC)), _capture(1, Anchor(Domain.MONOTONIC))])
    assert (_offsets(found), found.method, len(found.issues)) == ({0: 0, 1: 0}, "host", 0)


def test_monotonic_clocks_of_two_hosts_are_not_comparable():
    """No offset is guessed; every rank is booked."""
    found = plan(
        [_capture(0, Anchor(Domain.MONOTONIC)), _capture(1, Anchor(Domain.MONOTONIC), "b")]
    )
    assert (_offsets(found), found.issues.count("unaligned")) == ({0: 0, 1: 0}, 2)


def test_relative_stamps_are_not_comparable():
    """Zero is some event of the capture."""
    found = plan([_capture(0, Anchor(Domain.RELATIVE)), _capture(1, Anchor(Domain.RELATIVE))])
    assert found.issues.count("unaligned") == 2


def test_relative_stamps_with_a_known_start_are():
    """A base in the file ties them to Unix time."""
    found = plan([_capture(0, Anchor(Domain.RELATIVE, 0, UNIX)), _capture(1, _monotonic(), "b")])
    assert (found.offset_ns(0), found.method) == (UNIX, "meta")


def test_a_silent_capture_takes_the_clock_of_its_neighbours_with_a_doubt():
    """Same host, same reader, all agreed: used, and booked as assumed."""
    found = plan([_capture(0, _monotonic()), _capture(1)])
    assert found.offset_ns(1) == UNIX - BOOT
    assert [(i.code, i.rank) for i in found.issues] == [("clock-assumed", 1)]


def test_a_silent_capture_of_another_host_stays_unaligned():
    """Its times are kept as they are."""
    found = plan([_capture(0, _monotonic()), _capture(1, None, "b")])
    assert (found.offset_ns(1), found.issues.count("unaligned")) == (0, 1)


def test_a_single_rank_needs_no_clock():
    """Nothing to be aligned with, nothing to be in doubt about."""
    found = plan([_capture(3)])
    assert (_offsets(found), len(found.issues)) == ({3: 0}, 0)


def test_meta_refuses_what_auto_would_let_pass():
    """The message names the ranks without an anchor."""
    with pytest.raises(ClockError, match=r"rank 1 relates to Unix time"):
        plan([_capture(0, _monotonic()), _capture(1)], "meta")


def test_wall_refuses_stamps_that_are_known_to_be_none():
    """A clock since boot is not the time of day."""
    with pytest.raises(ClockError, match=r"rank 0 is not stamped in Unix time"):
        plan([_capture(0, _monotonic())], "wall")


def test_wall_and_none_move_nothing():
    """They differ in what the report says."""
    captures = [_capture(0), _capture(1, None, "b")]
    found = [plan(captures, mode) for mode in ("wall", "none")]
    assert [f.method for f in found] == ["wall", "none"]
    assert [(_offsets(f), len(f.issues)) for f in found] == [({0: 0, 1: 0}, 0)] * 2


def test_offsets_from_a_file(tmp_path):
    """Numbers, or numbers in quotes; ranks that are not merged may stand there, too."""
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps({"0": -1500, "1": str(UNIX), "9": 4}))
    found = plan([_capture(0), _capture(1)], str(path))
    assert (_offsets(found), found.method) == ({0: -1500, 1: UNIX}, "file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not an object of offsets"),
        ('{"1": 5}', "no offset for rank 0"),
        ('{"0": 1.5}', "rank 0 is not a whole number"),
        ('{"0": true}', "rank 0 is not a whole number"),
        ('{"0": "x"}', "rank 0 is not a whole number"),
        ('{"0": 9223372036854775808}', "rank 0 is not a whole number"),
    ],
)
def test_offsets_that_are_none(tmp_path, content, message):
    """Every way a file can be wrong is the library's own error."""
    path = tmp_path / "offsets.json"
    path.write_text(content)
    with pytest.raises(ClockError, match=message):
        plan([_capture(0)], str(path))


def test_neither_a_mode_nor_a_file():
    """The message lists the modes."""
    modes = "auto, collective, meta, wall, none"
    with pytest.raises(SourceError, match=f"neither {modes} nor a readable file"):
        plan([_capture(0)], "collectiv")


def test_a_plan_as_json_values():
    """Offsets are strings there: they outgrow a double."""
    document = plan([_capture(0, _monotonic()), _capture(1, _monotonic(2_500_000))]).as_dict()
    assert document["ranks"]["1"]["offset_ns"] == str(UNIX - BOOT)
    assert document["text"] == "Unix time as recorded, anchors agree within 2.50 ms"
    json.dumps(document)


@pytest.fixture
def trace():
    """A rank with two steps, a counter and a window."""
    build = TraceBuilder(_capture(0))
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    for n in (1, 2):
        build.slice(host, 100 * n, 90, f"ProfilerStep#{n}", op=OpClass.HOST, step=n)
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 120, 9, "k", op=OpClass.COMPUTE)
    build.counter(build.track(Layer.COUNTER, "HBM", unit="KB"), 110, 1.0)
    build.window(100, 300)
    return attribution(steps(build.finish()))


def test_shifting_moves_everything(trace):
    """Slices, samples, windows and the times of the steps; nothing else."""
    moved = shift(trace, UNIX)
    assert (moved.events.start_ns - UNIX).tolist() == trace.events.start_ns.tolist()
    assert moved.events.dur_ns is trace.events.dur_ns
    assert moved.counters.start_ns.tolist() == [UNIX + 110]
    assert moved.windows.tolist() == [[UNIX + 100, UNIX + 300]]
    assert moved.steps.device_start_ns.tolist()[1] == UNIX + 200


def test_shifting_there_and_back_is_identity(trace):
    """To the last digit."""
    back = shift(shift(trace, UNIX), -UNIX)
    assert np.array_equal(back.events.start_ns, trace.events.start_ns)
    assert all(map(np.array_equal, back.steps.columns().values(), trace.steps.columns().values()))


@pytest.mark.parametrize("offset", [INT64_MAX - 120, -INT64_MAX - 120])
def test_shifting_out_of_int64_is_refused(trace, offset):
    """The end of a slice counts, too; the message names rank and offset."""
    with pytest.raises(ClockError, match=rf"rank 0: an offset of {offset} ns"):
        shift(trace, offset)


# -- ranks whose clock nobody knows ----------------------------------------------------------


def test_an_unaligned_rank_far_away_is_moved_to_the_start_of_the_others():
    """Since boot beside Unix time: the trace would be 53 years long. It stays unaligned."""
    captures = [_capture(0, Anchor(Domain.UNIX)), _capture(1, host="b")]
    spans = {0: (UNIX, UNIX + 900), 1: (BOOT, BOOT + 500)}
    found = plan(captures, records=[], spans=spans)
    assert _offsets(found) == {0: 0, 1: UNIX - BOOT}
    [issue] = found.issues
    assert (issue.code, issue.rank, issue.count) == ("unaligned", 1, 1)
    assert issue.places == ("moved to the start of the other ranks",)
    assert found.error_ns(1) is None


def test_an_unaligned_rank_near_the_others_is_kept_as_stamped():
    """Up to as far as all that was recorded is long."""
    captures = [_capture(0, Anchor(Domain.UNIX)), _capture(1, host="b")]
    for start, offset in ((UNIX + 2300, 0), (UNIX + 2301, -2301)):
        spans = {0: (UNIX, UNIX + 900), 1: (start, start + 500)}
        assert plan(captures, records=[], spans=spans).offset_ns(1) == offset


def test_where_no_rank_is_aligned_the_first_decides():
    """Every host counts from its own boot; of a rank without times nobody needs to know."""
    captures = [_capture(rank, host=str(rank)) for rank in range(3)]
    spans = {0: (BOOT, BOOT + 10), 1: (5, 15), 2: None}
    found = plan(captures, records=[], spans=spans)
    assert _offsets(found) == {0: 0, 1: BOOT - 5, 2: 0}
    assert [issue.rank for issue in found.issues] == [0, 1]


def test_a_rank_with_times_among_tables_has_no_clock_to_doubt():
    """Nothing is compared with it."""
    captures = [_capture(rank, host=str(rank)) for rank in range(3)]
    found = plan(captures, records=[], spans={0: None, 1: (5, 15), 2: None})
    assert (_offsets(found), list(found.issues)) == ({0: 0, 1: 0, 2: 0}, [])


def test_a_merge_with_one_unaligned_rank_is_as_long_as_its_ranks(tmp_path):
    """In the written trace: the last end of all, from the first start."""
    for rank, us in ((0, UNIX // 1000), (1, 7)):
        event = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": us, "dur": 5 + rank}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps([event]))
    traceconv.merge(
        tmp_path, out=tmp_path / "x.json", mode="detail", rank_from="name", layers="other,host"
    )
    written = json.loads((tmp_path / "x.json").read_bytes())
    ends = [e["ts"] + e["dur"] for e in written["traceEvents"] if e["ph"] == "X"]
    assert (len(ends), max(ends)) == (2, 6)
    assert written["metadata"]["traceconv"]["issues"]["unaligned"] == 1
