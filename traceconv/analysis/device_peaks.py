"""What devices can do at most, from ``device_peaks.toml``, which names the sources."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files

import msgspec


class Peaks(msgspec.Struct, frozen=True):
    """Peaks of one device.

    Attributes:
        half:   10^12 operations per second in half precision, without sparsity.
        memory: 10^9 bytes per second.
        eight:  10^12 operations per second of 8 bits; 0 if the device has no such units.
        link:   10^9 bytes per second to the other devices of a node; 0 if unknown.
    """

    half: float
    memory: float
    eight: float = 0.0
    link: float = 0.0


@cache
def peaks_of(name: str) -> Peaks | None:
    """The peaks of the device that profilers call so; None if they are not known."""
    for pattern, peaks in _listed():
        if pattern.fullmatch(name):
            return peaks
    return None


@cache
def _listed() -> tuple[tuple[re.Pattern[str], Peaks], ...]:
    text = files("traceconv.analysis").joinpath("device_peaks.toml").read_text("utf-8")
    return tuple(
        (re.compile(device["name"]), msgspec.convert(device, Peaks))
        for device in tomllib.loads(text)["device"]
    )
