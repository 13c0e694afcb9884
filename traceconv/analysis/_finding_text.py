"""Figures of findings in words."""

from __future__ import annotations

from typing import Any

_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_UNITS = {"percent": " %", "gbs": " GB/s", "s": " s"}


def figure(name: str, value: Any, unit: str = "") -> str:
    """A figure with its name and unit; the unit ends the name ("idle_percent", "wait_ns")."""
    if not unit:
        stem, _, ending = name.rpartition("_")
        unit = ending if stem and ending in ("ns", "bytes", *_UNITS) else ""
        name = stem if unit else name
    return f"{name.replace('_', ' ')} {_measured(value, unit)}".strip()


def _measured(value: Any, unit: str) -> str:
    if unit in ("ns", "bytes"):
        steps, small = (_TIMES, "ns") if unit == "ns" else (_SIZES, "B")
        for scale, called in steps:
            if abs(value) >= scale:
                return f"{value / scale:.3f} {called}"
        return f"{value} {small}"
    if isinstance(value, float):
        return f"{value:.4g}{_UNITS.get(unit, '')}"
    if isinstance(value, (list, tuple)):
        return "; ".join(map(str, value))
    return f"{value}{_UNITS.get(unit, '')}"
