"""``dataclass`` for modules that every command loads: that of the standard library, made faster.

The standard one compiles up to six functions for each class, 0.3 ms of work. A small merge makes
100 classes, and a fifth of its processor time went there. This one compiles ``__init__`` alone; the
other functions are the same for all classes but for the names of the fields. Fields, ``replace``,
``asdict``, signatures, inheritance and errors are those of :mod:`dataclasses`, and so is the type:
a type checker sees the standard one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from collections.abc import Callable
    from dataclasses import MISSING, Field, FrozenInstanceError, fields
    from dataclasses import dataclass as standard
    from operator import attrgetter
    from reprlib import recursive_repr
    from typing import Any

    class _Made:
        """Stands for a default that is made for each instance, in signatures, too."""

        def __repr__(self) -> str:
            return "<factory>"

    _MADE = _Made()

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True
    ) -> type | Callable[[type], type]:
        """As :func:`dataclasses.dataclass`, with the options of it that are used here."""

        def made(cls: type) -> type:
            return _with_functions(cls, frozen, eq)

        return made if cls is None else made(cls)

    def _with_functions(cls: type, frozen: bool, eq: bool) -> type:
        # What derives has to be given to the standard one as it is: it compares it with its base.
        derived = any("__dataclass_fields__" in vars(base) for base in cls.__mro__[1:])
        cls.__doc__ = cls.__doc__ or cls.__name__  # else it is made of a signature
        cls = standard(cls, init=False, repr=False, eq=False, frozen=frozen and derived)
        said = cls.__dataclass_params__
        said.init, said.repr, said.eq, said.frozen = True, True, eq, frozen
        own, every = vars(cls), fields(cls)
        missing: dict[str, Callable[..., Any]] = {}
        missing["__init__"] = _init(cls, every, frozen)
        missing["__repr__"] = _repr([f.name for f in every if f.repr])
        if eq:
            compared = _values([f.name for f in every if f.compare])
            missing["__eq__"] = _eq(compared)
            if frozen:
                missing["__hash__"] = _hash(
                    _values([f.name for f in every if (f.compare if f.hash is None else f.hash)])
                )
        if frozen and not derived:
            missing["__setattr__"], missing["__delattr__"] = _unchanging(cls, every)
        for name, function in missing.items():
            # Python itself sets __hash__ to None beside an __eq__ in the body.
            if own.get(name) is None:
                function.__qualname__ = f"{cls.__qualname__}.{name}"
                function.__name__, function.__module__ = name, cls.__module__
                setattr(cls, name, function)
        if eq and not frozen and "__hash__" not in own:
            cls.__hash__ = None
        return cls

    def _init(cls: type, every: tuple[Field, ...], frozen: bool) -> Callable[..., None]:
        """The one function that is compiled: it is called most, and its signature is shown."""
        known: dict[str, Any] = {"_set": object.__setattr__, "_MADE": _MADE}
        asked, named, lines = [], [], []
        for field in every:
            name, value = field.name, field.name
            default = field.default is not MISSING
            if default or field.default_factory is not MISSING:
                known[f"_{name}"] = field.default if default else field.default_factory
            if not default and field.default_factory is not MISSING:
                value = f"_{name}() if {name} is _MADE else {name}" if field.init else f"_{name}()"
            elif not field.init:
                continue  # the default is an attribute of the class
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
            if field.init:
                text = f"{name}=_{name}" if default else f"{name}=_MADE" if value != name else name
                (named if field.kw_only else asked).append(text)
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        words = ", ".join(["self", *asked, *(["*", *named] if named else [])])
        exec(f"def __init__({words}):\n " + "\n ".join(lines or ["pass"]), known)
        init: Callable[..., None] = known["__init__"]
        init.__annotations__ = {f.name: f.type for f in every if f.init} | {"return": None}
        return init

    def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
        """What reads these attributes of an instance."""
        if len(names) > 1:
            return attrgetter(*names)
        return lambda instance: tuple(getattr(instance, name) for name in names)

    def _repr(names: list[str]) -> Callable[[Any], str]:
        def __repr__(self: Any) -> str:
            shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{type(self).__qualname__}({shown})"

        return recursive_repr()(__repr__)

    def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
        def __eq__(self: Any, other: object) -> bool:
            if type(other) is not type(self):
                return NotImplemented
            return values(self) == values(other)

        return __eq__

    def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
        def __hash__(self: Any) -> int:
            return hash(values(self))

        return __hash__

    def _unchanging(cls: type, every: tuple[Field, ...]) -> tuple[Callable[..., None], ...]:
        names = frozenset(field.name for field in every)

        def __setattr__(self: Any, name: str, value: object) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self: Any, name: str) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return __setattr__, __delattr__
