"""Our description of foreign protobuf messages: as the original has it, and as we ship it."""

import importlib.util

import pytest
from paths import ROOT
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

import tests.descriptors as _proto
from traceconv.protobuf import perfetto_schema
from traceconv.protobuf.own_rank import OwnRank

STEMS = sorted(path.stem for path in (ROOT / "schemas" / "proto").glob("*.proto"))

spec = importlib.util.spec_from_file_location("schemas_build", ROOT / "schemas" / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)


@pytest.mark.parametrize("stem", STEMS)
def test_descriptor_sets_are_up_to_date(stem):
    """``make proto`` would change nothing."""
    shipped = (ROOT / "tests" / "descriptors" / f"{stem}.binpb").read_bytes()
    assert build.descriptor_set(ROOT / "schemas" / "proto" / f"{stem}.proto") == shipped


def test_nothing_else_is_shipped():
    """Every descriptor set has a source."""
    assert sorted(p.stem for p in (ROOT / "tests" / "descriptors").glob("*.binpb")) == STEMS


def our_messages():
    trace = _proto.message("perfetto_trace", "perfetto.protos.Trace").DESCRIPTOR
    todo, found = [trace], {}
    while todo:
        message = todo.pop()
        if message.full_name not in found:
            found[message.full_name] = message
            todo += [f.message_type for f in message.fields if f.message_type]
    return found


RENAMED = {"InternedName": "EventName", "InternedString": "InternedString"}


def original(message):
    pool = perfetto_trace_pb2.DESCRIPTOR.pool
    package, _, name = message.full_name.rpartition(".")
    return pool.FindMessageTypeByName(f"{package}.{RENAMED.get(name, name)}")


def shape(field):
    return (field.number, field.type, field.is_repeated)


@pytest.mark.parametrize("message", our_messages().values(), ids=lambda m: m.name)
def test_messages_are_those_of_perfetto(message):
    """Names, numbers, types and repetition of all fields agree with the ``perfetto`` package."""
    theirs = original(message)
    expected = {f.name: shape(theirs.fields_by_name[f.name]) for f in message.fields}
    assert expected == {f.name: shape(f) for f in message.fields}


@pytest.mark.parametrize("message", our_messages().values(), ids=lambda m: m.name)
def test_enums_are_those_of_perfetto(message):
    """So do the values of enums."""
    for enum in message.enum_types:
        theirs = original(message).enum_types_by_name[enum.name].values_by_name
        assert {v.name: theirs[v.name].number for v in enum.values} == {
            v.name: v.number for v in enum.values
        }


NUMBERS = ["TracePacket", "TrackDescriptor", "ProcessDescriptor", "CounterDescriptor", "TrackEvent"]
NUMBERS += ["InternedData", "DebugAnnotation", "TraceAttributes.Attribute", "ThreadDescriptor"]
NUMBERS += ["ClockSnapshot", "ClockSnapshot.Clock", "TracePacketDefaults", "TrackEventDefaults"]
NUMBERS += ["TrackEvent.LegacyEvent", "GpuRenderStageEvent", "GpuCounterEvent"]


@pytest.mark.parametrize("name", NUMBERS)
def test_encoder_uses_the_described_numbers(name):
    """The constants of the hand-written encoder are the fields described, no more, no less."""
    described = our_messages()[f"perfetto.protos.{name}"]
    constants = getattr(perfetto_schema, name.rpartition(".")[2])
    fields = {f.name.upper(): f.number for f in described.fields}
    assert fields == perfetto_schema.numbers(constants)


def test_own_messages_have_the_described_numbers():
    """So are those of what only our reader reads."""
    described = _proto.message("traceconv_rank", "traceconv.Rank").DESCRIPTOR
    fields = {f.name.upper(): f.number for f in described.fields}
    assert fields == perfetto_schema.numbers(OwnRank)


def test_own_field_is_nobody_elses():
    """No message that has a field of ours has one of that number in the original."""
    names = ["TracePacket", "DebugAnnotation", "InternedString", "EventName", "DebugAnnotationName"]
    pool, own = perfetto_trace_pb2.DESCRIPTOR.pool, perfetto_schema.OWN_FIELD
    of = [pool.FindMessageTypeByName(f"perfetto.protos.{name}") for name in names]
    assert [m.name for m in of if own in m.fields_by_number] == []


def test_unknown_messages_are_an_error():
    """Asking for what a file does not hold names it."""
    with pytest.raises(KeyError, match="Nonsense"):
        _proto.message("perfetto_trace", "perfetto.protos.Nonsense")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import 'x';", 'line 1: unexpected "\'"'),
        ("message A {\n  map<string, int32> a = 1;\n}", "line 2: unexpected '<'"),
        ("message A {\n  optional B b = 1;\n}", "unknown type 'B'"),
        ("message A { optional int32 a = x; }", "'x' instead of a number"),
        ("service A { }", "'service' is not supported"),
        ("message A {", "unexpected end"),
    ],
)
def test_unsupported_language_is_an_error(text, why):
    """What the small reader of ``.proto`` files does not know, it refuses by line."""
    with pytest.raises(build.ProtoError, match=why):
        build.parse("a.proto", text)


def test_oneof_and_proto3_are_read():
    """Fields of a oneof belong to it; the syntax is kept."""
    text = 'syntax = "proto3"; package p; enum E { Z = 0; }'
    text += "message A { oneof o { int32 a = 1; string b = 2; } E e = 3; }"
    file = build.parse("a.proto", text)
    fields = [(f.name, f.HasField("oneof_index"), f.type_name) for f in file.message_type[0].field]
    assert (
        file.syntax,
        fields,
    ) == ("proto3", [("a", True, ""), ("b", True, ""), ("e", False, ".p.E")])
