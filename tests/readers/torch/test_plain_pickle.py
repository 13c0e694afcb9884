"""The machine that reads pickles makes plain values, and nothing else."""

import io
import json
import os
import pickle
import pickletools
from random import Random

import pytest

import traceconv
from traceconv.readers.torch.plain_pickle import Cut, Refused, json_text, load

PLAIN = {
    "text": ["", "plain", "ü\u2603", "\ud800", "x" * 300],
    "numbers": [0, 1, -1, 255, 256, 65_535, 65_536, 2**31, -(2**31), 2**63, -(2**100), 1.5, -0.0],
    "others": [None, True, False, b"", b"bytes", b"\xff" * 300, (), (1,), (1, 2), (1, 2, 3, 4)],
    7: {"deep": [[[[{"a": ()}]]]]},
    "list": list(range(2000)),
    "dict": {i: str(i) for i in range(2000)},
}

OPCODES = {ord(op.code): op.name for op in pickletools.opcodes}
HARMFUL = """
POP POP_MARK DUP PERSID BINPERSID REDUCE STRING BINSTRING SHORT_BINSTRING BUILD GLOBAL INST OBJ
NEWOBJ EXT1 EXT2 EXT4 BINBYTES8 EMPTY_SET ADDITEMS FROZENSET NEWOBJ_EX STACK_GLOBAL BYTEARRAY8
NEXT_BUFFER READONLY_BUFFER
"""


def same(a, b):
    """Equal, and of equal types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and str(a) == str(b)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_of_every_protocol(protocol):
    """What Python writes of them, also without what it remembers."""
    value = PLAIN if protocol >= 3 else {k: v for k, v in PLAIN.items() if k != "others"}
    if protocol < 1:  # which writes half pairs and long numbers in ways of its own
        value = {k: v for k, v in value.items() if k not in ("text",)}
    raw = pickle.dumps(value, protocol)
    assert same(load(raw), value)
    assert same(load(pickletools.optimize(raw)), value)


def test_shared_values_are_one_object():
    """As Python has it."""
    frames = [{"name": "f"}]
    found = load(pickle.dumps([frames, frames]))
    assert found[0] is found[1]


@pytest.mark.parametrize(
    "code", [c for c in range(256) if OPCODES.get(c, "POP") in HARMFUL.split()]
)
def test_every_other_instruction_is_refused(code):
    """By name and place, wherever it is, before anything after it is looked at."""
    for before in (b"", b"\x80\x02", b"\x80\x02}(X\x01\x00\x00\x00aK\x01", b"\x80\x04]K\x01"):
        with pytest.raises(Refused, match=f"^byte {len(before)}") as caught:
            load(before + bytes([code]) + b"cos\nsystem\n(S'x'\ntR.")
        if code in OPCODES:
            assert f": {OPCODES[code]}: only plain values are read" in str(caught.value)


class Runs:
    """What runs when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_runs(tmp_path, protocol):
    """Python's reader would make a folder."""
    raw = pickle.dumps({"entries": [Runs(tmp_path / "made")]}, protocol)
    with pytest.raises(Refused, match="GLOBAL"):
        load(raw)
    assert list(tmp_path.iterdir()) == []
    pickle.loads(raw)
    assert [p.name for p in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, frozenset((1,)), bytearray(b"x"), complex(1, 2), range(3), slice(1, 2), object,
        len, OSError("x"), io.BytesIO(b"x"), Ellipsis, NotImplemented,
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_other_values_are_refused(value, protocol):
    """Whatever instruction they need."""
    try:
        raw = pickle.dumps([value], protocol)
    except TypeError:
        pytest.skip("Python does not write it")
    with pytest.raises(Refused, match="only plain values are read"):
        load(raw)


def test_type_tags_are_named():
    """What PyTorch writes of lists whose type it knows."""
    with pytest.raises(Refused, match="type tags"):
        load(b"\x80\x02ctorch.jit._pickle\nrestore_type_tag\n.")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x09.", b".", b"K\x01K\x02.", b"(K\x01.", b"u.", b"(u.", b"](K\x01K\x02u.",
        b"}(K\x01u.", b"h\x05.", b"q\x05.", b"\x86.", b"X\x01\x00\x00\x00\xff.",
        b"]" * 65 + b"a" * 64 + b".",
    ],
)  # fmt: skip
def test_malformed_pickles_are_refused(raw):
    """Whatever the unpickler stumbles over."""
    with pytest.raises(Refused, match=r"^byte|levels"):
        load(raw)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"}(]K\x01u.", "key that is list"),
        (b"}(G\x00\x00\x00\x00\x00\x00\x00\x00K\x01u.", "key that is float"),
        (b"})q\x00h\x00\x86q\x00" + b"h\x00\x86q\x00" * 40 + b"K\x01s.", "key"),
        (b"\x8a\x20" + b"\x01" * 32 + b".", "too many digits"),
        (b"L" + b"9" * 100 + b"L\n.", "too many digits"),
        (b"]q\x00h\x00a.", "holds itself"),
        (b"}q\x00(K\x01h\x00u.", "holds itself"),
    ],
)
def test_values_that_take_forever_are_refused(raw, why):
    """With their reason."""
    with pytest.raises(Refused, match=why):
        load(raw)


def test_as_many_levels_as_are_allowed():
    """And not one more, see above."""
    assert load(b"]" * 64 + b"a" * 63 + b".")


@pytest.mark.parametrize(
    "raw",
    [b"X\xff\xff\xff\xffabc", b"\x8d" + b"\xff" * 8, b"B\xff\xff\xff\x7f", b"\x95" + b"\xff" * 8],
)
def test_lengths_beyond_the_end_allocate_nothing(raw):
    """They are those of a file that was cut."""
    with pytest.raises((Cut, Refused)):
        load(raw)


def test_references_that_multiply_take_no_room():
    """2**40 values, if each was written out."""
    raw = b"]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(40)) + b"."
    raw = b"(" + raw[:-1] + b"l."
    value = load(raw)[-1]
    assert json_text(value) is None


def test_json_has_what_json_has():
    """Everything else becomes text."""
    value = {1: b"x", "f": float("inf"), "n": 2**70, "s": "\ud800", "t": (1, None, True)}
    assert json.loads(json_text(value)) == {
        "1": "x", "f": "inf", "n": str(2**70), "s": "?", "t": [1, None, True]
    }  # fmt: skip


def test_a_cut_pickle_gives_what_was_on_the_stack():
    """At every byte; nothing but these two errors."""
    entries = [{"id": i, "name": "all_reduce"} for i in range(3)]
    raw = pickle.dumps({"entries": entries}, 2)
    best = 0
    for size in range(len(raw)):
        with pytest.raises(Cut) as caught:
            load(raw[:size])
        best = max(best, sum(one == entries[0] for one in caught.value.values))
    assert best == 1


def test_damage_ends_in_one_of_two_errors():
    """20 000 pickles with wrong bytes give plain values or are refused."""
    rng = Random(7)
    seeds = [pickle.dumps(PLAIN, p) for p in (2, 4)]
    seeds += [pickle.dumps([{"a": [1, "x", (None, 2.5)]}] * 3, p) for p in range(6)]
    counts = {"made": 0, "refused": 0, "cut": 0}
    for _ in range(20_000):
        raw = bytearray(rng.choice(seeds)[-400:] if rng.random() < 0.2 else rng.choice(seeds[2:]))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.choice((0, 1, 1, 3))] = rng.randbytes(rng.choice((0, 1, 1, 2)))
        try:
            plain(load(bytes(raw)))
            counts["made"] += 1
        except Cut:
            counts["cut"] += 1
        except Refused:
            counts["refused"] += 1
    assert min(counts.values()) > 100


def plain(value):
    """See that a value is made of plain values only."""
    seen, pending = set(), [value]
    while pending:
        one = pending.pop()
        assert type(one) in (dict, list, tuple, str, bytes, int, float, bool, type(None))
        if id(one) not in seen and type(one) in (dict, list, tuple):
            seen.add(id(one))
            pending += [*one.keys(), *one.values()] if type(one) is dict else one


@pytest.mark.parametrize("name", ["snap.pickle", "nccl_trace_rank_0"])
def test_texts_of_shared_values_are_bounded(tmp_path, name):
    """A list of 2**40 values as the name of an action or as the version of the dump."""
    laughs = [["x"]]
    for _ in range(40):
        laughs.append([laughs[-1]] * 2)
    entry = {"time_created_ns": 1, "profiling_name": "nccl:all_reduce"}
    record = {"action": laughs[-1], "time_us": 5, "size": 1, "frames": [{"name": laughs[-1]}]}
    value = {"entries": [entry], "version": laughs[-1], "device_traces": [[record]]}
    value["segments"] = []
    (tmp_path / name).write_bytes(pickle.dumps(value, 2))
    [trace] = traceconv.open(tmp_path / name).traces("detail")
    assert max(map(len, trace.strings)) < 1000
