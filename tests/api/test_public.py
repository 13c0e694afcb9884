"""The public names: all there, and every one that a public signature mentions."""

import inspect
import re

import pytest

import traceconv
from traceconv.api.convert import MergeArguments

VERBS = (
    *("open", "inspect", "merge", "join", "convert", "stats", "align", "stragglers", "diagnose"),
    *("diff", "critical_path"),
)
PLAIN = {"Any", "Literal", "Mapping", "Iterable", "Sequence", "Progress", "PathLike", "Unpack"}


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_signature_names_can_be_imported(verb):
    """The result and the classes of arguments; those of ``api.options`` are aliases."""
    signature = inspect.signature(getattr(traceconv, verb))
    mentioned = {
        word
        for text in (*(p.annotation for p in signature.parameters.values()),
                     signature.return_annotation)
        for word in re.findall(r"(?<![.\w])[A-Z]\w+", str(text))
    }  # fmt: skip
    literals = {"Mode", "Layout", "EngineName", "OverLimit", "LayerName", "AlignMethod"}
    missing = mentioned - set(traceconv.__all__) - PLAIN - literals - {"None"}
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


def test_convert_takes_what_merge_takes():
    """By the same names, of the same types."""
    wanted = {
        name: one.annotation for name, one in inspect.signature(traceconv.merge).parameters.items()
    }
    del wanted["paths"], wanted["out"]
    given = {name: one.__forward_arg__ for name, one in MergeArguments.__annotations__.items()}
    assert given == wanted
