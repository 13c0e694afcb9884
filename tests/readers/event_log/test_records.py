"""Raw event logs: begins and ends, the ranks of a file, and the accounts."""

import json
from functools import partial

import jsonschema
import numpy as np
import pytest
from event_logs import booked, rows, written
from paths import ROOT

from traceconv.core.errors import MalformedInputError
from traceconv.readers.event_log import find as _event_log_find
from traceconv.readers.event_log import records as _event_log_records
from traceconv.readers.event_log import rows as _event_log_pairs


@pytest.fixture
def log(tmp_path):
    """Writes a text and reads it back, through a mapping if one is given."""
    return partial(written, tmp_path)


# -- begins and ends --------------------------------------------------------------------------


def slowly_paired(key, time, opens):
    """What :func:`paired` does, mark by mark."""
    stacks, begins, alone = {}, {}, []
    for i in sorted(range(len(key)), key=lambda i: (key[i], time[i])):
        stack = stacks.setdefault(key[i], [])
        if opens[i]:
            stack.append(i)
            begins[i] = -1
        elif stack:
            begins[stack.pop()] = i
        else:
            alone.append(i)
    return sorted(begins.items()), sorted(alone)


def test_pairs_are_those_of_a_stack():
    """Sorting finds the same pairs as a stack per key does, with ties and strays."""
    random = np.random.default_rng(3)
    for _ in range(300):
        n = int(random.integers(1, 40))
        key, time = random.integers(0, 4, n), random.integers(0, 9, n)
        opens = random.random(n) < 0.5
        begin, end, alone = _event_log_pairs.joined(key.astype(np.int32), time, opens)
        found = list(zip(begin.tolist(), end.tolist(), strict=True)), alone.tolist()
        assert slowly_paired(key.tolist(), time.tolist(), opens.tolist()) == found


@pytest.mark.parametrize(("begin", "end"), [("begin", "end"), ("Enter", "Leave"), ("B", "E")])
def test_begin_and_end_words(log, begin, end):
    """The words of other logs for begin and end are understood."""
    text = f"name,ts,ph,thread\nx,1,{begin},1\nx,4,{end},1\n"
    assert rows(log(text).trace) == [("x", 1000, 3000)]


def test_pairs_reach_over_batches(log, monkeypatch):
    """A begin and its end may be far apart in the file."""
    monkeypatch.setattr(_event_log_records, "BATCH_RECORDS", 2)
    middle = "".join(f"m,{i},mark\n" for i in range(2, 9))
    found = log(f"name,ts,ph\nx,1,begin\n{middle}x,9,end\n").trace
    assert rows(found)[0] == ("x", 1000, 8000)


# -- ranks ------------------------------------------------------------------------------------


def test_one_file_of_many_ranks(log):
    """Every rank of a file is a capture; what names none belongs to rank 0, with a doubt."""
    found = log("name,ts,rank\na,1,2\nb,2,0\nc,3,\nd,4,first\ne,5,2\n")
    assert found.ranks == [0, 2]
    assert [[r[0] for r in rows(t)] for t in found.traces] == [["b", "c"], ["a", "e"]]
    assert booked(found.issues) == [
        ("malformed-record", 1, ("line 5: rank 'first'",)),
        ("record-without-rank", 1, ()),
    ]


def test_patterns_of_ranks(log):
    """If it matches no row, the error shows a value; rows that it does not match are counted."""
    rows_of_workers = "name,ts,who\na,1,loader-2\nb,2,loader-3\nc,3,main\n"
    with pytest.raises(MalformedInputError, match="the pattern of the rank matches no 'who'"):
        log(rows_of_workers, r"name=name,ts=ts,rank=who/loader(\d+)/")
    found = log(rows_of_workers, r"name=name,ts=ts,rank=who/loader-(\d+)/")
    assert found.ranks == [0, 2, 3]
    assert booked(found.issues) == [("record-without-rank", 1, ())]


def test_damage_of_a_file_of_many_ranks_is_counted_once(log):
    """A line that cannot be read could be anybody's: it is said once, not once per rank."""
    found = log('{"name":"a","ts":1,"rank":0}\nbroken\n{"name":"b","ts":1,"rank":1}\n')
    assert [i.code for i in found.issues] == ["malformed-record"]
    assert [len(t.issues) for t in found.traces] == [0, 0]


@pytest.mark.parametrize(
    ("text", "name", "rank"),
    [
        ('{"rawlog":1,"rank":5}\n{"name":"a","ts":1}\n', "x.jsonl", 5),
        ("# rank = 6\nname,ts\na,1\n", "x.csv", 6),
        ("name,ts\na,1\n", "rank7.csv", 7),
        ("name,ts\na,1\n", "run_20240131.csv", None),
    ],
)
def test_rank_of_a_whole_log(log, text, name, rank):
    """The head of a log names its rank, or the word rank in its path; a mere number does not."""
    assert log(text, name=name).ranks == [rank]


def test_rank_by_mapping(log):
    """A mapping cuts the rank out of another column, or says it."""
    text = "n,t,node\na,1,worker-3/gpu\nb,2,worker-4/gpu\n"
    assert log(text, r"name=n,ts=t,rank=node/worker-(\d+)/").ranks == [3, 4]
    assert log(text, "name=n,ts=t,rank='9'").ranks == [9]


def test_too_many_ranks_are_a_mistake(log, monkeypatch):
    """A column of stamps taken for ranks is refused before it makes a million captures."""
    monkeypatch.setattr(_event_log_find, "MAX_RANKS", 3)
    with pytest.raises(MalformedInputError, match="more than 3 ranks"):
        log("name,ts,rank\n" + "".join(f"a,1,{i}\n" for i in range(9)))


# -- accounts ---------------------------------------------------------------------------------


def test_rejected_records_are_booked_by_what_they_were(log):
    """What was lost of every kind is in the ledger, so that nothing goes missing in silence."""
    text = "name,ts,dur,ph,value\na,1,1,,\nb,x,1,,\nc,x,,,\nd,1,,counter,y\ne,1,,end,\n"
    assert log(text).trace.ledger == {
        ("read", "slice"): 2,
        ("lost", "slice"): -1,
        ("read", "instant"): 1,
        ("lost", "instant"): -1,
        ("read", "counter"): 1,
        ("lost", "counter"): -1,
    }


def test_extremes_of_time_do_not_wrap(log):
    """Lengths beyond int64 are refused, not wrapped around."""
    low, high = -(2**63 - 1), 2**63 - 1
    text = (
        f"# unit=ns\nname,ts,end,ph\na,{high},{low},\nb,{low},{high},\nc,5,6,\n"
        f"d,{low},,begin\nd,{high},,end\n"
    )
    found = log(text).trace
    assert rows(found) == [("c", 5, 1)]
    assert found.ledger["lost", "slice"] == -3


def test_schema_says_what_the_reader_does():
    """Sound lines of the golden logs are valid by the JSON schema, rejected ones are not."""
    schema = json.loads((ROOT / "schemas/json/raw_event_log.schema.json").read_text())
    valid = jsonschema.Draft202012Validator(schema).is_valid
    for case in ("schema_jsonl", "begin_end"):
        for file in (ROOT / "golden/event_log" / case / "input").iterdir():
            assert [ln for ln in file.read_text().splitlines() if not valid(json.loads(ln))] == []
    for wrong in ({"ts": 1}, {"name": "a", "ts": 1, "dur": 1, "end": 2}, {"rawlog": 2}):
        assert not valid(wrong)
