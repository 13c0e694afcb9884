"""Groups of options: dataclasses whose fields say how a value is given, read and explained.

A field made by :func:`option` is a keyword of the library, and an option of the command line if it
has flags. A field made by :func:`group` contains the options of another group. ``Group.of`` makes
the checked values from keywords; :func:`takes` shows the keywords in the signature of a function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, field, fields
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from traceconv.core.choices import unknown
from traceconv.core.errors import OptionError

Function = TypeVar("Function", bound=Callable[..., Any])


class Option(NamedTuple):
    """How one option is given, read and explained.

    Attributes:
        parse:    reads a value; raises OptionError. Takes the value and the name of the option.
        help:     what it does; the first sentence stands alone. Other options are named by their
            keyword in backticks.
        flags:    on the command line; none for what only Python needs.
        metavar:  what follows the flag; "" for a switch.
        usual:    whether the short help explains it.
        repeated: whether it may be given several times.
        complete: what a shell offers: a function of :mod:`traceconv.cli.completion`.
        section:  heading in the help, if not that of the group.
    """

    parse: Callable[[Any, str], Any]
    help: str
    flags: tuple[str, ...] = ()
    metavar: str = ""
    usual: bool = False
    repeated: bool = False
    complete: str = ""
    section: str = ""


class Declared(NamedTuple):
    """An option of a group.

    Attributes:
        name:    is the keyword.
        default: in this group.
        section: its heading in the help.
        type:    what callers may pass, as an annotation.
    """

    name: str
    option: Option
    default: Any
    section: str
    type: str


def option(
    default: Any, parse: Callable[[Any, str], Any], *flags: str, help: str, **settings: Any
) -> Any:
    """A field that is an option; see :class:`Option`."""
    return field(default=default, metadata={"option": Option(parse, help, flags, **settings)})


def same_as(group: type[Group], name: str, default: Any = MISSING) -> Any:
    """A field that is one option of another group, alone, maybe with another name and default."""
    members = fields(group)  # type: ignore[arg-type]
    found_field = next(member for member in members if member.name == name)
    metadata = {**found_field.metadata, "title": group.title}
    return field(default=found_field.default if default is MISSING else default, metadata=metadata)


def group(
    kind: type[Group], *, without: Collection[str] = (), whole: bool = False, **fixed: Any
) -> Any:
    """A field that contains the options of ``kind``.

    Args:
        without: options that are not offered.
        whole:   whether callers may pass a ``kind`` in place of its keywords.
        fixed:   defaults, as checked values, other than those of ``kind``.
    """
    return field(
        default_factory=lambda: kind._build({}, fixed),
        metadata={"group": kind, "without": frozenset(without), "whole": whole, "fixed": fixed},
    )


class Group:
    """Base of the dataclasses of this package.

    Attributes:
        title: heading of its options in the help.
    """

    title: ClassVar[str] = ""

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Self:
        """The checked values of keywords; defaults for what is not given.

        Raises:
            OptionError: a value is not understood, or two contradict each other.
            TypeError: there is no such keyword.
        """
        names = {declared_option.name for declared_option in declared(cls)} | _wholes(cls)
        for name in keywords:
            if name not in names:
                raise TypeError(unknown("argument", name, sorted(names)))
        return cls._build(keywords, {})

    @classmethod
    def _build(cls, keywords: Mapping[str, Any], fixed: Mapping[str, Any]) -> Self:
        values: dict[str, Any] = {}
        for member in fields(cls):  # type: ignore[arg-type]
            name, inner = member.name, member.metadata.get("group")
            if inner is not None:  # other names are options of other groups
                inner_keywords = {
                    key: keywords[key] for key in keywords if key not in member.metadata["without"]
                }
                values[name] = _part(
                    name, inner, inner_keywords, {**member.metadata["fixed"], **fixed}
                )
            elif "option" in member.metadata and name in keywords:
                values[name] = member.metadata["option"].parse(keywords[name], name)
            elif name in fixed:
                values[name] = fixed[name]
        return cls(**values)


def _part(
    name: str, kind: type[Group], keywords: Mapping[str, Any], fixed: Mapping[str, Any]
) -> Group:
    """A group inside another one: from its keywords, or given as a whole."""
    instance = keywords.get(name)
    if instance is None:
        return kind._build(keywords, fixed)
    if not isinstance(instance, kind):
        raise OptionError(f"{instance!r} is not a traceconv.{kind.__name__}", name)
    *names, last_name = [f"`{member.name}`" for member in declared(kind)]
    if any(keywords.get(option_name.strip("`")) is not None for option_name in (*names, last_name)):
        raise OptionError(
            f"is given together with {', '.join(names)} or {last_name}; put these into it", name
        )
    return kind._build(vars(instance), vars(instance))


def _wholes(kind: type[Group]) -> set[str]:
    """Keywords that give a whole group."""
    members = {member.name: member.metadata for member in fields(kind)}  # type: ignore[arg-type]
    groups = {name: metadata["group"] for name, metadata in members.items() if "group" in metadata}
    return set(groups).union(*map(_wholes, groups.values()))


def declared(kind: type[Group]) -> Iterator[Declared]:
    """The options of a group and of the groups inside it, in order, with their defaults."""
    for member in fields(kind):  # type: ignore[arg-type]
        if "option" in member.metadata:
            declared_option: Option = member.metadata["option"]
            bases = (base for base in kind.__mro__ if issubclass(base, Group))
            owner = next(base for base in bases if member.name in base.__annotations__)
            title = declared_option.section or member.metadata.get("title") or owner.title
            value_type = declared_option.parse.__annotations__["value"]
            hint = owner.__annotations__[member.name] if value_type == "Any" else value_type
            yield Declared(
                member.name, declared_option, member.default, title, hint.removeprefix("values.")
            )
        elif "group" in member.metadata:
            fixed = member.metadata["fixed"]
            for inner in declared(member.metadata["group"]):
                if inner.name not in member.metadata["without"]:
                    yield inner._replace(default=fixed.get(inner.name, inner.default))


class Argument(NamedTuple):
    """A keyword of the library.

    Attributes:
        type: what callers may pass, as an annotation.
    """

    name: str
    type: str
    default: Any
    help: str


def arguments(kind: type[Group]) -> list[Argument]:
    """The keywords that make a group, its own first."""
    own_names = {member.name for member in fields(kind)}  # type: ignore[arg-type]
    listed = [
        Argument(
            declared_option.name,
            declared_option.type,
            declared_option.default,
            declared_option.option.help,
        )
        for declared_option in declared(kind)
    ]
    listed += [
        Argument(name, f"{group.__name__} | None", None, "All of its keywords at once.")
        for name, group in _given_whole(kind)
    ]
    return sorted(listed, key=lambda argument: argument.name not in own_names)


def _given_whole(
    kind: type[Group], without: frozenset[str] = frozenset()
) -> Iterator[tuple[str, type[Group]]]:
    """Groups that callers may pass, unless some of their options are not offered."""
    for member in fields(kind):  # type: ignore[arg-type]
        if "group" in member.metadata:
            inner = member.metadata["group"]
            if member.metadata["whole"] and without.isdisjoint(d.name for d in declared(inner)):
                yield member.name, inner
            yield from _given_whole(inner, without | member.metadata["without"])


def takes(kind: type[Group]) -> Callable[[Function], Function]:
    """Show the keywords of ``kind`` in the signature and the docstring of a function that takes
    them as ``**given``. For type checkers and editors, ``arguments.pyi`` has the same."""

    def shown(function: Function) -> Function:
        shared = inspect.signature(function)
        *parameters, _ = shared.parameters.values()
        lines = []
        for argument in arguments(kind):
            if argument.name not in shared.parameters:
                keyword = inspect.Parameter.KEYWORD_ONLY
                parameters.append(
                    inspect.Parameter(
                        argument.name, keyword, default=argument.default, annotation=argument.type
                    )
                )
                lines.append(f"        {argument.name}: {argument.help}")
        function.__signature__ = shared.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__doc__ = "\n".join([function.__doc__ or "", "    Keyword Args:", *lines, ""])
        return function

    return shown
