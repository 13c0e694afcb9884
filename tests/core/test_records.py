"""Classes made by ``core.records`` are those that the standard library makes."""

import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from traceconv.core import records

MAKERS = {"standard": dataclasses.dataclass, "ours": records.dataclass}


def classes(made: Callable):
    """The kinds of classes that there are, by name, made by one or the other."""

    @made(frozen=True)
    class Point:
        """A place."""

        x: int
        y: float = 0.5
        names: list[str] = field(default_factory=list)
        unseen: int = field(default=7, compare=False, repr=False)

        def __post_init__(self):
            if self.x < 0:
                raise ValueError("below zero")

    @made
    class Count:
        """May be changed."""

        total: int = 0
        kept: dict[str, int] = field(default_factory=dict, init=False)

    @made(eq=False)
    class Alone:
        """Equal to itself only."""

        value: int

    @made(frozen=True)
    class Empty:
        """Nothing in it."""

    @made(frozen=True)
    class Single:
        """One value; says itself how it is shown."""

        value: object

        def __repr__(self):
            return "single"

    @made(frozen=True)
    class Further(Point):
        """One more field, after those of the base."""

        more: tuple[int, ...] = ()
        named: str = field(kw_only=True, default="n")

    @made(frozen=True)
    class Own:
        """Compares by itself."""

        value: int

        def __eq__(self, other):
            return True

    every = (Point, Count, Alone, Empty, Single, Further, Own)
    return {cls.__name__: cls for cls in every}


INSTANCES = {
    "Point": [((1,), {}), ((1, 2.0, ["a"]), {}), ((2,), {"unseen": 3}), ((1,), {"unseen": 9})],
    "Count": [((), {}), ((3,), {})],
    "Alone": [((1,), {}), ((1,), {})],
    "Empty": [((), {}), ((), {})],
    "Single": [((1,), {}), ((1,), {}), (([],), {})],
    "Further": [((1,), {"more": (2,)}), ((1, 2.0, [], 7, (), ), {"named": "m"})],
    "Own": [((1,), {}), ((2,), {})],
}  # fmt: skip


def outcome(function, *args, **named):
    """A value, or the error with its message."""
    try:
        return function(*args, **named)
    except Exception as e:  # noqa: BLE001 - which one is what is compared
        return type(e), str(e)


def seen(cls, instances):
    """What can be seen of a class and of instances of it."""
    made = [cls(*args, **named) for args, named in instances]
    first = fields(cls)[0].name if fields(cls) else "x"
    says = cls.__dataclass_params__
    return {
        "signature": str(inspect.signature(cls)),
        "fields": [(f.name, f.type, f.init, f.repr, f.compare, f.kw_only) for f in fields(cls)],
        "parameters": (says.init, says.repr, says.eq, says.frozen),
        "match": cls.__match_args__,
        "doc": cls.__doc__,
        "repr": [repr(one) if "repr" in cls.__dict__ or says.eq else "" for one in made],
        "equal": [[a == b for b in made] for a in made],
        "other": [one.__eq__(3) for one in made],
        "hashable": [type(outcome(hash, one)) for one in made if says.eq],
        "equal hashes": [
            outcome(hash, a) == outcome(hash, b) for a in made for b in made if says.eq and a == b
        ],
        "dict": [asdict(one) for one in made],
        "replaced": [repr(outcome(replace, one, **{first: 4})) for one in made if says.eq],
        "set": [outcome(setattr, one, first, 5) for one in made],
        "set another": [outcome(setattr, one, "another", 5) for one in made],
        "deleted": [outcome(delattr, one, first) for one in made],
        "left": [vars(one) for one in made],
        "too few": outcome(cls)[0] if cls.__name__ in ("Point", "Alone") else None,
    }


@pytest.mark.parametrize("name", INSTANCES)
def test_they_behave_as_the_standard_ones(name):
    """Signature, fields, comparison, hash, text, changes and errors."""
    one, other = (seen(classes(made)[name], INSTANCES[name]) for made in MAKERS.values())
    assert one == other


def test_a_check_after_the_fields_are_set_is_called():
    """Also of a class that derives."""
    for name in ("Point", "Further"):
        with pytest.raises(ValueError, match="below zero"):
            classes(records.dataclass)[name](-1)


def test_what_derives_without_being_one_has_attributes_of_its_own():
    """As with the standard ones: only the fields are kept from changes."""

    class Named(classes(records.dataclass)["Point"]):
        pass

    named = Named(1)
    named.title = "a"
    del named.title
    with pytest.raises(FrozenInstanceError, match="'x'"):
        named.x = 2
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del named.x


@pytest.mark.parametrize("base, derived", [(True, False), (False, True)])
def test_frozen_and_changing_classes_do_not_mix(base, derived):
    """The standard library refuses it; so does this."""
    for made in MAKERS.values():

        @made(frozen=base)
        class Base:
            """Of one kind."""

            x: int = 0

        with pytest.raises(TypeError, match="frozen"):

            @made(frozen=derived)
            class Derived(Base):
                """Of the other."""

                y: int = 0


def test_a_text_of_itself_ends():
    """An instance that holds itself is shown as dots."""
    count = classes(records.dataclass)["Count"]()
    count.kept["itself"] = count
    assert "..." in repr(count)


def test_they_travel_between_processes():
    """Pickled and read again, they are equal."""
    from traceconv.core.clock import Correction

    one = Correction(1, 2, 3)
    assert pickle.loads(pickle.dumps(one)) == one
    assert isinstance(hash(one), int)
    with pytest.raises(FrozenInstanceError):
        one.drift_ppt = 5


def test_every_class_of_the_package_has_the_signature_of_a_standard_one():
    """For all that this process has loaded, public ones among them."""
    import traceconv

    assert all(hasattr(traceconv, name) for name in traceconv.__all__)
    found = 0
    for module in [m for n, m in sys.modules.items() if n.startswith("traceconv.")]:
        for cls in [c for c in vars(module).values() if isinstance(c, type)]:
            ours = dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__
            if not ours or not cls.__dataclass_params__.init:
                continue
            every = [f for f in fields(cls) if f.init]
            asked = inspect.signature(cls).parameters
            assert sorted(asked) == sorted(f.name for f in every), cls
            for f in every:
                if f.default is not dataclasses.MISSING:
                    assert asked[f.name].default is f.default
                assert asked[f.name].annotation == f.type
            found += 1
    assert found > 50
