"""All rules, and their thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter

from msgspec.structs import replace

from traceconv.analysis.rules import communication as _rules_comm
from traceconv.analysis.rules import device as _rules_device
from traceconv.analysis.rules import efficiency as _rules_efficiency
from traceconv.analysis.rules import gaps as _rules_gaps
from traceconv.analysis.rules import host as _rules_host
from traceconv.analysis.rules import of_tables as _rules_tables
from traceconv.analysis.rules import operators as _rules_ops
from traceconv.analysis.rules import pipeline as _rules_pipeline
from traceconv.analysis.rules import queues as _rules_queue
from traceconv.analysis.rules import stages as _rules_stages
from traceconv.analysis.rules import steps as _rules_steps
from traceconv.analysis.rules.definition import Limits, Rule
from traceconv.core.choices import unknown
from traceconv.core.errors import OptionError
from traceconv.core.plugins import Plugins, collect

_MODULES = (
    _rules_steps, _rules_queue, _rules_pipeline, _rules_device, _rules_host, _rules_gaps,
    _rules_comm, _rules_ops, _rules_efficiency, _rules_stages,
    _rules_tables,
)  # fmt: skip

PLUGINS: Plugins[Rule] = collect(
    "traceconv.rules",
    ((module.__name__, rule) for module in _MODULES for rule in module.RULES),
    attrgetter("id"),
    lambda rule: "" if isinstance(rule, Rule) else "it is not a traceconv.plugin.Rule",
)
"""Our rules, and those that installed packages announce."""


def _guarded(rule: Rule) -> Rule:
    """A rule whose errors name the package that brings it, if it is not ours."""
    if rule.id not in PLUGINS.foreign:
        return rule
    blamed = PLUGINS.blamed(rule.id)
    return replace(rule, facts=blamed(rule.facts), judge=blamed(rule.cases))


RULES: Mapping[str, Rule] = {name: _guarded(rule) for name, rule in PLUGINS.found.items()}
"""Every rule by id."""


def chosen(ids: Iterable[str] | None) -> list[Rule]:
    """The selected rules, each once; None for all.

    Raises:
        OptionError: there is no such rule; the message lists those there are.
    """
    if ids is None:
        return list(RULES.values())
    ids_given = dict.fromkeys(ids)
    for name in ids_given:
        if name not in RULES:
            raise OptionError(unknown("rule", name, RULES), "rule")
    return [RULES[name] for name in ids_given]


def thresholds(values: Mapping[str, float]) -> Mapping[str, Limits]:
    """The thresholds of every rule, by its id and the threshold's name.

    Args:
        values: other values than the defaults, by ``rule`` (its main threshold) or ``rule.name``.

    Raises:
        OptionError: there is no such threshold, or its value is no number.
    """
    limits = {
        rule.id: {limit.name: limit.value for limit in rule.limits} for rule in RULES.values()
    }
    for key, value in values.items():
        rule, _, name = key.partition(".")
        if name not in limits.get(rule, {}):
            names_of_thresholds = [
                f"{r}.{n}" if n else r for r, names in limits.items() for n in names
            ]
            raise OptionError(unknown("threshold", key, names_of_thresholds), "threshold")
        if not math.isfinite(value):
            raise OptionError(f"{key}: {value} is not a finite number", "threshold")
        limits[rule][name] = float(value)
    return limits


def rows() -> list[dict[str, str]]:
    """The table of rules: id, measure, thresholds with their sources, theme."""

    def number(value: float) -> str:
        return "?" if math.isnan(value) else f"{value:g}"

    return [
        {
            "rule": rule.id,
            "theme": rule.theme,
            "measure": rule.measure,
            "threshold": ", ".join(
                " ".join(
                    filter(
                        None,
                        (
                            limit.name,
                            "<" if limit.below else ">",
                            number(limit.value),
                            limit.spelled,
                        ),
                    )
                )
                for limit in rule.limits
            ),
            "source": "; ".join(dict.fromkeys(limit.source for limit in rule.limits)),
        }
        for rule in RULES.values()
    ]
