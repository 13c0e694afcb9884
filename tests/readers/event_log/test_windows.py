"""Several logs of one rank are windows of it; others stay apart."""

import json

import pytest
from event_logs import found_by, rows

from traceconv.core.builder import TraceBuilder
from traceconv.readers.event_log import reader as event_log


def event(ts, name, **more):
    return json.dumps({"ts": ts, "dur": 2, "name": name, **more})


def logs(folder, **texts):
    """Captures of logs; a name's underscores before digits are kept, its ending is jsonl."""
    for name, text in texts.items():
        (folder / f"{name}.jsonl").write_text(text)
    return found_by(event_log.READER, folder)[0]


def read(capture):
    build = TraceBuilder(capture)
    event_log.READER.read(capture, build)
    return build.finish()


def test_logs_that_say_one_rank_are_its_windows(tmp_path):
    """In the order of their numbers, whatever the order of names; the time between is unknown."""
    [capture] = logs(
        tmp_path, rank3_10=event(900, "c"), rank3_2=event(500, "b"), rank3_1=event(100, "a")
    )
    trace = read(capture)
    assert (capture.rank, capture.files) == (
        3, ("rank3_1.jsonl", "rank3_2.jsonl", "rank3_10.jsonl")
    )  # fmt: skip
    assert [name for name, *_ in rows(trace)] == ["a", "b", "c"]
    assert trace.windows.tolist() == [[100000, 102000], [500000, 502000], [900000, 902000]]


def test_logs_of_many_ranks_are_joined_rank_by_rank(tmp_path):
    """Records say whose they are."""
    found = logs(
        tmp_path,
        log1="\n".join([event(1, "a", rank=0), event(2, "b", rank=1)]),
        log2="\n".join([event(11, "c", rank=0), event(12, "d", rank=1)]),
    )
    assert [(c.rank, [n for n, *_ in rows(read(c))]) for c in found] == [
        (0, ["a", "c"]), (1, ["b", "d"]),
    ]  # fmt: skip


def test_parts_of_nobody_are_joined_if_they_are_called_parts(tmp_path):
    """Other numbers may be ranks."""
    [capture] = logs(tmp_path, gpu_part1=event(1, "a"), gpu_part2=event(9, "b"))
    assert (capture.rank, len(capture.files)) == (None, 2)


@pytest.mark.parametrize(
    "texts",
    [
        {"worker1": event(1, "a"), "worker2": event(9, "b")},
        {"rank1": event(1, "a"), "rank2": event(9, "b")},
        {"rank1_gpu": event(1, "a"), "rank1_cpu": event(9, "b")},
        {"rank1_1": '{"rawlog": 1, "unit": "ms"}\n' + event(1, "a"), "rank1_2": event(9, "b")},
    ],
    ids=["a number that may be a rank", "two ranks", "two logs of a rank", "two units"],
)
def test_other_logs_stay_apart(tmp_path, texts):
    """Whether they are one rank is for the user to say."""
    assert len(logs(tmp_path, **texts)) == 2


def test_a_broken_window_is_booked_and_the_others_are_read(tmp_path):
    """As with the windows of other readers, a file that vanished into garbage is one loss."""
    [capture] = logs(tmp_path, rank3_1=event(100, "a"), rank3_2=event(500, "b"))
    (tmp_path / "rank3_2.jsonl").write_text("{garbage\n")
    trace = read(capture)
    assert [name for name, *_ in rows(trace)] == ["a"]
    assert trace.issues.count("malformed-record") == 1
