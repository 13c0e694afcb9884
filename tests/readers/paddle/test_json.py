"""What Paddle's JSON leaves to guess: finer times, names without durations, broken text."""

import re

import pytest
from paddle_files import (
    T0,
    Host,
    Recording,
    as_json,
    small,
)
from paddle_traces import codes, many, named, read, read_json, rows, write

# -- times of JSON -------------------------------------------------------------------------


def test_starts_are_recovered(tmp_path):
    """Starts are exact against each other, and to the noted uncertainty against 1970."""
    recording = many()
    trace = read_json(tmp_path, as_json(recording))
    found = [(r[5], r[6]) for r in sorted(rows(trace), key=lambda r: r[5])]
    (noted,) = trace.notes["paddle"]
    shift = found[0][0]
    assert [(a - shift, d) for a, d in found] == [
        (h.start, h.end - h.start) for h in recording.hosts
    ]
    assert abs(shift) <= noted["starts_uncertain_ns"] <= 5
    assert codes(trace) == {}


@pytest.mark.parametrize(("version", "noted"), [("1.0.2", {0: 16 << 30}), ("1.0.0", {})])
def test_memory_of_devices_is_noted(tmp_path, version, noted):
    """Version 1.0.0 printed 32 bits of it."""
    text = as_json(small(), version).replace('"id": 0,', f'"id": 0, "totalGlobalMem": {16 << 30},')
    assert read_json(tmp_path, text).hints.device_memory_bytes == noted


def test_utilisation_of_the_cpu_is_percent(tmp_path):
    """What is no fraction is passed over."""
    recording = small()
    recording.threads |= {"Process Cpu Utilization": "0.5", "System Cpu Utilization": "lots"}
    assert read_json(tmp_path, as_json(recording)).hints.cpu_percent == {"process": [50.0]}


def test_starts_beyond_exact_floats_are_nearly_recovered(tmp_path):
    """A second after the first event, floats of microseconds err by less than 125 ns."""
    recording = many()
    at = range(10**9, 10**9 + 10**7, 10_007)
    late = [Host(f"late{i}", "Operator", t, t + 500) for i, t in enumerate(at)]
    recording.hosts += late
    trace = read_json(tmp_path, as_json(recording))
    shift = named(trace, "op0")[0][0]
    errors = [abs(named(trace, h.name)[0][0] - shift - h.start) for h in late[::50]]
    assert 0 < max(errors) <= 125


def test_late_starts_stay_as_stamped(tmp_path):
    """Beyond four seconds the finer times are of no use: whole microseconds, and a doubt."""
    recording = many(50)
    recording.hosts.append(Host("late", "Operator", 5_000_000_789, 5_000_001_789))
    trace = read_json(tmp_path, as_json(recording))
    assert named(trace, "late") == [(5_000_000_789 - (T0 + 789) % 1000, 1000)]
    assert codes(trace) == {"time-rounded": 1}


def test_times_that_contradict_the_stamps_are_not_used(tmp_path):
    """If no start of the first event fits all stamps, they are kept as they are."""
    text = as_json(many(50)).replace('"start_time": "0.000 us"', '"start_time": "7.000 us"', 1)
    trace = read_json(tmp_path, text)
    assert {(start + T0) % 1000 for _, *_, start, _, _, _ in rows(trace)} == {0}
    assert codes(trace)["time-rounded"] == 50


def test_stamps_of_another_grid_are_left_alone(tmp_path):
    """A stamp with digits behind the point needs no recovery."""
    text = re.sub(r'"ts": (\d+)', r'"ts": \1.125', as_json(many(50)))
    trace = read_json(tmp_path, text)
    assert {(start + T0) % 1000 for _, *_, start, _, _, _ in rows(trace)} == {125}
    assert codes(trace) == {}


COARSE = 6_000_000_000


def coarse(*hosts):
    """Operators so late that their starts stay whole microseconds, behind a first event."""
    moved = [
        Host(n, "Operator", COARSE - T0 % 1000 + a, COARSE - T0 % 1000 + b) for n, a, b in hosts
    ]
    return as_json(Recording([Host("first", "Operator", 0, 10), *moved]))


@pytest.mark.parametrize(
    ("hosts", "trimmed"),
    [
        ([("outer", 5_900, 9_000), ("inner", 6_100, 8_990)], {"inner": 2_100}),
        ([("one", 5_000, 6_900), ("two", 7_905, 9_000)], {}),
        ([("one", 5_000, 7_900), ("two", 7_905, 12_000)], {"one": 2_000}),
        ([("one", 5_000, 9_000), ("two", 7_500, 11_000)], {}),
        ([("outer", 5_900, 9_000), ("same", 5_900, 9_000)], {}),
    ],
    ids=["child", "apart", "sibling", "crossing", "equal"],
)
def test_slices_that_cross_by_less_than_their_stamps_say_are_cut(tmp_path, hosts, trimmed):
    """Children end with their parents, and siblings before the next; real crossings stay."""
    trace = read_json(tmp_path, coarse(*hosts))
    durations = {row[4]: row[6] for row in rows(trace) if row[4] != "first"}
    assert durations == {name: b - a for name, a, b in hosts} | trimmed
    assert codes(trace).get("slice-trimmed", 0) == len(trimmed)


def test_exact_slices_are_never_cut(tmp_path):
    """Where starts were recovered, slices that cross by a nanosecond really do."""
    recording = many(100)
    recording.hosts.append(Host("a", "Operator", 1_000_000, 1_001_000))
    recording.hosts.append(Host("b", "Operator", 1_000_999, 1_002_000))
    trace = read_json(tmp_path, as_json(recording))
    assert (named(trace, "a")[0][1], named(trace, "b")[0][1]) == (1000, 1001)


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0.0", "1.0.1", "1.0.2"])
@pytest.mark.parametrize(
    "name", ["plain", "range[3.000 us]", "list[8]", "x[1.500 ms]", "[0.500 us]"]
)
def test_only_the_appended_duration_goes(tmp_path, version, name):
    """What looks like a duration and stands before the writer's own is the user's."""
    trace = read_json(tmp_path, as_json(Recording([Host(name, "Operator", 0, 1_500)]), version))
    assert [row[4] for row in rows(trace)] == [name]


def test_a_duration_that_is_not_the_events_stays(tmp_path):
    """A name is only cut where it ends in the event's own duration."""
    text = as_json(Recording([Host("op", "Operator", 0, 1_500)])).replace(
        "[1.500 us]", "[1.502 us]"
    )
    assert [row[4] for row in rows(read_json(tmp_path, text))] == ["op[1.502 us]"]


def test_long_durations_in_names_may_be_rounded(tmp_path):
    """Milliseconds with three digits, through a float of 32 bits."""
    text = as_json(Recording([Host("op", "Operator", 0, 123_456_789_012)]))
    text = text.replace("[123456.789 ms]", "[123456.789 ms]".replace("789", "785"))
    assert [row[4] for row in rows(read_json(tmp_path, text))] == ["op"]


# -- repair --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ['a "b" c', "back\\slash", 'ends", "pid": 7, "x": "', "tab\tand\nline", '"', "\\", 'é "ü"'],
)
def test_names_are_repaired(tmp_path, name):
    """Whatever stands in a name comes out as it was."""
    recording = small()
    recording.hosts[2].name = name
    recording.hosts[3].name = 'surely "broken"'
    trace = read_json(tmp_path, as_json(recording))
    assert named(trace, name)[0][1] == 39_502
    assert codes(trace)["repaired-record"] == 2
    assert len(trace.events) == 21


def test_numbers_that_are_none_become_null(tmp_path):
    """C prints nan and inf where JSON has no word."""
    text = as_json(small())
    for word in ("-nan", "inf"):
        text = text.replace("50.000000", word, 1)
    trace = read_json(tmp_path, text)
    raw = [trace.args.raw(a) for a in trace.events.args.tolist()]
    assert sum(b'occupancy %":null' in r for r in raw) == 2
    assert codes(trace)["repaired-record"] == 2


def test_names_of_threads_are_repaired(tmp_path):
    """They stand in two places, neither of which costs an event."""
    recording = small()
    recording.threads[100] = 'a "main" \\ thread'
    trace = read_json(tmp_path, as_json(recording))
    assert trace.notes["paddle"][0]["extra_info"]["100"] == 'a "main" \\ thread'
    assert len(trace.events) == 21


def test_sound_files_are_not_repaired(tmp_path):
    """Strict JSON is taken at its word, escapes and all."""
    text = as_json(small()).replace("LeNet", 'a \\"b\\"')
    trace = read_json(tmp_path, text)
    assert named(trace, 'a "b"')[0][1] == 39_502
    assert "repaired-record" not in codes(trace)


def test_repair_and_loss_are_both_counted(tmp_path):
    """A cut file with broken names loses its end only."""
    recording = small()
    recording.hosts[2].name = 'a "b"'
    text = as_json(recording)
    trace = read_json(tmp_path, text[: text.index("cudaMemsetAsync")])
    assert {"repaired-record": 1, "truncated": 1}.items() <= codes(trace).items()
    assert named(trace, 'a "b"') != []


def test_blocks_may_end_anywhere(tmp_path, monkeypatch):
    """What is repaired does not depend on where the bytes that are read at once end."""
    recording = small()
    recording.hosts[2].name, recording.hosts[6].name = 'a "b"', "two\nlines"
    path = write(tmp_path, "rank0", as_json(recording).replace("50.000000", "nan", 1))
    usual = read(path)
    for size in (1, 64, 1000):
        monkeypatch.setattr("traceconv.readers.paddle.repair.BLOCK_BYTES", size)
        assert (rows(read(path)), codes(read(path))) == (rows(usual), codes(usual))


def test_repair_of_endless_lines_ends(tmp_path):
    """Lines made to be slow are passed over in one go."""
    blanks = '"callstack": "' + '" ' * 200_000 + " " * 400_000 + "x\n"
    head = as_json(many(3)).replace('"callstack": ""\n', blanks, 1)
    assert [row[4] for row in rows(read_json(tmp_path, head))] == ["op1", "op2"]
