"""Where a job hangs, by dumps of the flight recorder: who is missing or issued something else.

Dumps are made as PyTorch writes them; what is right is what its analyzer says of the same dumps
(torch/distributed/flight_recorder), where that decides.
"""

import json
import pickle

import pytest
from torch_files import collective

import traceconv
from traceconv.cli import run as command

WORLD = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
PAIRS = {
    "1": {"name": "1", "desc": "tp", "ranks": "[0, 1]"},
    "2": {"name": "2", "desc": "tp", "ranks": "[2, 3]"},
}


def issued(number, name="nccl:all_reduce", state="completed", group=("0", "default_pg"), **more):
    """An operation 1 ms after the one before; it takes half of that."""
    at = 1000 * number
    completed = at + 500 if state == "completed" else None
    started = at + 10 if state != "scheduled" else None
    return collective(number, name, at, started, completed, group, state=state, **more)


def message(number, name, state, record, **more):
    """A send or receive."""
    found = issued(record, f"nccl:{name}", state, **more)
    return {**found, "is_p2p": True, "p2p_seq_id": number, "collective_seq_id": 0}


@pytest.fixture
def found(tmp_path):
    """The verdict on dumps of ranks."""

    def judged(dumps, config=None, form="pickle"):
        for rank, entries in dumps.items():
            for at, one in enumerate(entries):
                one.setdefault("order", 0)
                one["record_id"] = at if one["record_id"] < 1000 else one["record_id"]
                one.pop("order")
            dump = {"version": "2.10", "nccl_version": "2.27.3", "entries": entries,
                    "pg_config": WORLD if config is None else config, "pg_status": {}}  # fmt: skip
            path = tmp_path / f"nccl_trace_rank_{rank}"
            if form == "pickle":
                path.write_bytes(pickle.dumps(dump, 2))
            else:
                path.with_suffix(".json").write_text(json.dumps(dump))
        return traceconv.stragglers(tmp_path, jobs=1).verdict.hang

    return judged


def sides(hang):
    """Ranks and operations, without the stacks."""
    return [(one.ranks, one.what) for one in hang.sides]


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_rank_that_has_not_issued_the_operation(found, form):
    """The others wait in it."""
    dumps = {r: [issued(1), issued(2), issued(3, state="started")] for r in (0, 1, 3)}
    hang = found({**dumps, 2: [issued(1), issued(2)]}, form=form)
    assert (hang.kind, hang.group, hang.purpose, hang.number) == ("missing", "0", "default_pg", 3)
    assert sides(hang) == [((0, 1, 3), "all_reduce"), ((2,), "")]
    assert hang.line() == (
        "hang: ranks 0-1,3 wait in all_reduce, operation 3 of group 0 (default_pg); "
        "rank 2 has not issued it"
    )
    assert hang.sides[0].stack == ("train (train.py:3)",)
    assert hang.lines()[1] == "rank 0 issued it in train (train.py:3)"


def test_a_rank_that_has_issued_nothing(found):
    """Its dump is empty but for another group."""
    dumps = {r: [issued(1, state="started")] for r in (0, 1, 3)}
    other = [issued(1, group=("2", "tp"))]
    hang = found({**dumps, 2: other}, {**WORLD, **PAIRS})
    assert (hang.kind, hang.number) == ("missing", 1)
    assert sides(hang) == [((0, 1, 3), "all_reduce"), ((2,), "")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "nccl:broadcast"}, "rank 1 issued broadcast"),
        ({"input_sizes": [[8]], "output_sizes": [[8]]},
         "rank 1 issued all_reduce with input [[8]] Float instead of [[3, 4]] Float"),
        ({"input_dtypes": ["Half"], "output_dtypes": ["Half"]},
         "rank 1 issued all_reduce with input [[3, 4]] Half instead of [[3, 4]] Float"),
    ],
)  # fmt: skip
def test_a_rank_that_issued_another_operation(found, change, said):
    """Another type, size or type of elements; whether or not the operation had begun."""
    dumps = {r: [issued(1), issued(2, state="started")] for r in (0, 2, 3)}
    hang = found({**dumps, 1: [issued(1), issued(2, state="scheduled", **change)]})
    assert (hang.kind, hang.number) == ("mismatch", 2)
    assert [one.ranks for one in hang.sides] == [(0, 2, 3), (1,)]
    assert said in hang.line()


def test_the_first_difference_counts(found):
    """Sizes differed two operations before the one that all wait in."""
    dumps = {r: [issued(n) for n in (1, 2, 3)] + [issued(4, state="started")] for r in range(4)}
    dumps[3][1]["input_sizes"] = [[1]]
    hang = found(dumps)
    assert (hang.kind, hang.number) == ("mismatch", 2)
    assert [one.ranks for one in hang.sides] == [(0, 1, 2), (3,)]


@pytest.mark.parametrize(("name", "side"), [
    ("nccl:all_to_all", "both"), ("nccl:gather", "output_sizes"), ("nccl:scatter", "input_sizes"),
    ("nccl:all_gather_v", "both"),
])  # fmt: skip
def test_sizes_that_may_differ(found, name, side):
    """As PyTorch's analyzer has it."""
    dumps = {r: [issued(1, name, "started")] for r in range(4)}
    for key in ("input_sizes", "output_sizes") if side == "both" else (side,):
        dumps[1][0][key] = [[99]]
    assert found(dumps).kind == "stuck"


def test_a_rank_without_dump(found):
    """Nobody knows what it did; of those with one, all are in the operation."""
    hang = found({r: [issued(1), issued(2, state="started")] for r in (0, 1, 3)})
    assert (hang.kind, hang.number, hang.without_dump) == ("undecided", 2, (2,))
    assert hang.line().endswith("; no dump of rank 2")


def test_a_group_whose_ranks_wait_in_another(found):
    """Ranks 2 and 3 are missing in the world because rank 3 is missing in their pair."""
    every = {**WORLD, **PAIRS}
    first = [issued(1), issued(2, state="started")]
    pair = ("2", "tp")
    hang = found({
        0: first, 1: [dict(one) for one in first],
        2: [issued(1), issued(5, state="started", group=pair)], 3: [issued(1)],
    }, every)  # fmt: skip
    assert (hang.kind, hang.group, hang.number) == ("missing", "2", 5)
    assert sides(hang) == [((2,), "all_reduce"), ((3,), "")]
    (other,) = hang.also
    assert (other.kind, other.group, other.number) == ("missing", "0", 2)
    assert sides(other) == [((0, 1), "all_reduce"), ((2, 3), "")]
    assert hang.lines()[-1].startswith("also: ranks 0-1 wait in all_reduce")


def test_groups_of_one_name_have_other_members(found):
    """``split_group`` gives the parts of a group one name."""
    config = {"5": {"name": "5", "desc": "tp", "ranks": "[0, 1]"}}
    group = ("5", "tp")
    dumps = {
        rank: [issued(1, name, "started", group=group)]
        for rank, name in enumerate(("nccl:all_reduce", "nccl:barrier"))
    }
    assert found(dumps, config).kind == "mismatch"


def test_operations_that_dumps_no_longer_hold_are_not_compared(found):
    """A ring buffer: rank 1 still holds operation 4, the others begin with 5."""
    dumps = {}
    for rank in range(4):
        entries = [issued(n) for n in range(5, 8)] + [issued(8, state="started")]
        for at, one in enumerate(entries):
            one["record_id"] = 5000 + at
        dumps[rank] = entries
    old = issued(4, "nccl:broadcast")
    old["record_id"] = 4999
    dumps[1].insert(0, old)
    assert (found(dumps).kind, found(dumps).number) == ("stuck", 8)


def test_a_receive_that_was_not_issued(found):
    """Messages are paired by their ranks and their order; numbers of both sides differ."""
    dumps = {0: [message(7, "send 0->1", "completed", 1), message(8, "send 0->1", "started", 2)],
             1: [message(1, "recv 1<-0", "completed", 1)],
             2: [issued(1)], 3: [issued(1)]}  # fmt: skip
    hang = found(dumps)
    assert (hang.kind, hang.number) == ("missing", 8)
    assert sides(hang) == [((0,), "send"), ((1,), "")]


def test_a_message_of_another_size(found):
    """What is sent is not what is received."""
    dumps = {0: [message(1, "send 0->1", "started", 1)],
             1: [message(1, "recv 1<-0", "started", 1, output_sizes=[[5]])]}  # fmt: skip
    hang = found(dumps)
    assert hang.kind == "mismatch"
    assert sides(hang) == [((0,), "send"), ((1,), "recv")]


def test_messages_issued_together_have_the_state_of_what_ends_them(found):
    """Their own entries stay scheduled for ever."""
    dumps = {}
    for rank in (0, 1):
        peer = 1 - rank
        both = [message(1, f"send {rank}->{peer}", "scheduled", 1),
                message(1, f"recv {rank}<-{peer}", "scheduled", 2),
                message(1, "coalesced", "completed", 3)]  # fmt: skip
        dumps[rank] = [*both, issued(1, state="completed")]
    assert found(dumps) is None


def test_members_that_no_dump_names_are_unknown(found):
    """Other ranks may belong to the group: that all are in the operation is not known."""
    hang = found({r: [issued(1, state="started", group=("9", "ep"))] for r in range(2)})
    assert (hang.kind, hang.without_dump) == ("undecided", ())
    assert hang.line().endswith("; its members are not recorded")


def test_collectives_issued_together_are_compared_together(found):
    """They share a number: one of them differs."""
    dumps = {}
    for rank in range(4):
        parts = [issued(1, "nccl:all_gather", "scheduled") for _ in range(2)]
        dumps[rank] = [*parts, issued(1, "nccl:coalesced", "started")]
    assert found(dumps).kind == "stuck"
    dumps[2][1]["input_sizes"] = [[7]]
    hang = found(dumps)
    assert hang.kind == "mismatch"
    assert [one.ranks for one in hang.sides] == [(0, 1, 3), (2,)]


def test_a_job_that_goes_on(found):
    """All is completed, on some ranks further than on others."""
    assert found({r: [issued(n) for n in range(1, 3 + r)] for r in range(4)}) is None


def test_where_the_hang_is_said(found, tmp_path, capsys):
    """First of all, by every command; the document of each has it."""
    dumps = {r: [issued(1), issued(2, state="started")] for r in range(3)}
    line = found({**dumps, 3: [issued(1)]}).line()
    for name in ("diagnose", "stragglers"):
        assert command([name, str(tmp_path), "-q"]) == 0
        text = " ".join(capsys.readouterr().out.split())  # as wide as the terminal
        assert text.lower().startswith(line)
        assert command([name, str(tmp_path), "-q", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        document = document.get("stragglers", document)
        assert document["verdict"] == "hang"
        assert document["hang"]["sides"][1] == {
            "ranks": [3], "what": "", "input": "", "output": "", "state": "", "stack": [],
        }  # fmt: skip
    report = traceconv.merge(tmp_path, out=tmp_path / "out.pftrace")
    assert line in (text.lower() for text in report.lines())
    report = traceconv.write(traceconv.open(tmp_path).traces(), tmp_path / "again.pftrace")
    assert not report.headline  # traces are written as they are


def test_numbers_identify_operations(tmp_path, found):
    """Their clocks are compared by them, without any pace."""
    found({r: [issued(n) for n in range(1, 12)] for r in range(4)})
    offsets = traceconv.align(tmp_path, method="collective").plan.offsets
    assert [one.matches for one in offsets.values()] == [0, 11, 11, 11]


def test_shards_that_are_joined_say_where_a_job_hangs(found, tmp_path):
    """As one merge does."""
    dumps = {r: [issued(1), issued(2, state="started")] for r in range(3)}
    line = found({**dumps, 3: [issued(1)]}).line()
    shards = [str(tmp_path / f"{index}.shard") for index in range(2)]
    for index, shard in enumerate(shards):
        traceconv.merge(tmp_path, out=shard, shard=(index, 2), jobs=1)
    joined = traceconv.join(*shards, out=tmp_path / "joined.pftrace")
    assert joined.headline == "H" + line[1:]
