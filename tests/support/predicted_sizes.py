"""Predicted sizes of outputs beside written ones."""

import traceconv
from traceconv.core.errors import EmptyResultError

FORMATS = {"perfetto": ".pftrace", "chrome_json": ".json"}
MODES = ("summary", "detail")
HEAD_BYTES = 1000
"""More than what is written of a trace without an event."""


def misses(seen, tmp_path, *paths, **options):
    """Predictions that are not within 15 % of what is written: format, mode, both figures.

    Captures are read once per mode, into a shard from which both formats are written. What holds no
    event in a mode is not written: what is predicted of it is the size of what describes a trace.
    """
    found = []
    assert all(seen.predicted[name].keys() == set(MODES) for name in FORMATS)
    for mode in MODES:
        shard = str(tmp_path / f"{mode}.shard")
        traceconv.merge(*paths, out=shard, mode=mode, shard=(0, 1), force=True, **options)
        for name, ending in FORMATS.items():
            size = seen.predicted[name][mode]
            out = str(tmp_path / f"{mode}{ending}")
            try:
                wrote = sum(
                    one.content for one in traceconv.join(shard, out=out, force=True).written
                )
                fits = 0.85 * wrote <= size <= 1.15 * wrote
            except EmptyResultError:
                wrote, fits = 0, size <= HEAD_BYTES
            if not fits:
                found.append((name, mode, size, wrote))
    return found
