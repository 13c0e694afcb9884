"""The public names: all there, and every one that a public signature mentions."""

import inspect
import re

import pytest

import traceconv
from tests.support import option_types
from traceconv.options import values, verbs
from traceconv.options.declaration import declared
from traceconv.options.groups import Selection

VERBS = (
    *("open", "inspect", "merge", "join", "convert", "stats", "align", "stragglers", "diagnose"),
    *("diff", "critical_path", "what_if"),
)
PLAIN = {"Any", "Literal", "Mapping", "Iterable", "Sequence", "Progress", "PathLike", "Unpack"}


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_signature_names_can_be_imported(verb):
    """The result and the classes of arguments; those of ``options.values`` are aliases."""
    signature = inspect.signature(getattr(traceconv, verb))
    mentioned = {
        word
        for text in (*(p.annotation for p in signature.parameters.values()),
                     signature.return_annotation)
        for word in re.findall(r"(?<![.\w])[A-Z]\w+", str(text))
    }  # fmt: skip
    missing = mentioned - set(traceconv.__all__) - PLAIN - set(vars(values)) - {"None"}
    assert missing == set()
    assert str(signature.return_annotation) in traceconv.__all__


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_lives_in_a_module_of_its_name(verb):
    """But join, which ends what merge began."""
    home = getattr(traceconv, verb).__module__
    assert home == f"traceconv.api.{'merge' if verb == 'join' else verb}"


def test_names_are_sorted_and_real():
    """Every one can be had, and dir() lists them."""
    assert sorted(traceconv.__all__) == traceconv.__all__ == dir(traceconv)
    assert all(getattr(traceconv, name) is not None for name in traceconv.__all__)


KEYWORDS = {
    "inspect": verbs.InspectOptions,
    "merge": verbs.MergeRequest,
    "convert": verbs.ConvertRequest,
    "join": verbs.JoinOptions,
    "align": verbs.AlignOptions,
    "stats": verbs.StatsOptions,
    "stragglers": verbs.StragglerOptions,
    "what_if": verbs.WhatIfOptions,
    "critical_path": verbs.CriticalPathOptions,
    "diagnose": verbs.DiagnoseOptions,
    "diff": verbs.DiffOptions,
    "write": verbs.WriteOptions,
}


def test_type_checkers_are_told_what_is_declared():
    """``arguments.pyi`` is made of the declarations: `python -m tests.support.option_types`."""
    assert option_types.FILE.read_text() == option_types.text()


@pytest.mark.parametrize("verb", KEYWORDS)
def test_keywords_are_the_declared_options(verb):
    """Type checkers, ``inspect.signature``, ``help()`` and the parser know the same names."""
    names = {one.name for one in declared(KEYWORDS[verb])}
    function = getattr(traceconv, verb)
    parameters = inspect.signature(function).parameters
    shown = {name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}
    assert names - shown <= {"out"}  # of convert and write it is a positional argument
    assert shown - names <= {"selection", "merge_options"}
    assert all(f"\n        {name}: " in function.__doc__ for name in shown)


def test_an_analysis_takes_the_same_selection_as_a_merge():
    """Ranks, graphs, steps, time, layers and names, whatever the verb."""
    kept = [one.name for one in declared(Selection)]
    for verb in ("merge", "convert", "stats", "stragglers", "critical_path", "diagnose", "diff"):
        assert set(kept) <= set(inspect.signature(getattr(traceconv, verb)).parameters), verb


def test_an_unknown_keyword_is_answered_with_the_nearest():
    """As an option of the command line is."""
    with pytest.raises(TypeError, match=r"no argument 'rank' .did you mean 'ranks'"):
        traceconv.merge("x", rank=3)
