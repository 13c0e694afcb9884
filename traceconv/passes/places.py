"""Which device, and which thread of the host, each track of a rank is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64, Layer, Trace, Track

_OF_DEVICES = (Layer.DEVICE, Layer.COMM, Layer.OVERLAP)


class Device(NamedTuple):
    """A device of a rank.

    Attributes:
        kind:   "GPU", "NPU", "TPU", "CPU", "" if unknown.
        number: -1 for whatever is of no known device.
    """

    kind: str = ""
    number: int = -1

    @classmethod
    def of(cls, track: Track) -> Device:
        """The device of a track."""
        return cls(track.device_kind, track.device) if track.device >= 0 else cls()

    @property
    def heading(self) -> str:
        """Its name on screen; "" if unknown."""
        return f"{self.kind or 'Device'} {self.number}" if self.number >= 0 else ""


def devices(tracks: Sequence[Track]) -> list[Device]:
    """The devices that did something in some tracks, by kind and number; those that are known."""
    return sorted({Device.of(t) for t in tracks if t.layer in _OF_DEVICES} - {Device()})


def threads(trace: Trace) -> I64:
    """A number per track: equal for the tracks of one thread of one process. Tracks of no known
    thread are alone, sub-lanes too: asynchronous slices that cross do not nest."""
    numbers: dict[object, int] = {}
    keys = ((t.process, t.thread) if t.thread >= 0 else t for t in trace.tracks)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def of_device(trace: Trace, device: Device) -> NDArray[np.bool_]:
    """Per track, whether it is of a device, or of none in particular."""
    return np.array([Device.of(t) in (device, Device()) for t in trace.tracks], bool)
