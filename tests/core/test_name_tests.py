"""Tests of names are asked once of each name, and say the same ever after."""

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Layer
from traceconv.core.name_tests import NameTest, _Results, rows_named


def test_each_name_is_asked_once_as_long_as_it_is_remembered():
    """Many names, and long ones, are not kept, and pass all the same."""
    asked = []

    def test(name):
        asked.append(name)
        return len(name) % 2

    names = ["a", "ab", "a", "x" * (_Results.LONGEST + 1)]
    one = NameTest(test)
    assert one.each(names) == [True, False, True, True]
    assert one.each(names) == [True, False, True, True]
    assert asked == ["a", "ab", names[3], names[3]]
    many = [f"{i:05}" for i in range(_Results.MOST + 10)]
    assert one.each(many) == one.each(many) == [True] * len(many)
    assert len(one._said) == _Results.MOST


def test_rows_have_what_their_names_say():
    """In a trace whose strings no row has, too."""
    build = TraceBuilder.of_rank(0)
    build.string("never a name")
    track = build.track(Layer.HOST, "Thread 1", thread=1)
    for start, name in enumerate(("one", "two", "one")):
        build.slice(track, start * 10, 5, name)
    trace = build.finish()
    assert rows_named(trace, NameTest(lambda name: name == "one")).tolist() == [True, False, True]
    assert not rows_named(trace, NameTest(lambda name: "never" in name)).any()
    assert rows_named(trace, NameTest(lambda name: name == "no name")).dtype == np.bool_
