"""Predicted sizes of outputs beside written ones."""

import traceconv

FORMATS = {"perfetto": ".pftrace", "chrome_json": ".json"}


def misses(seen, tmp_path, *paths, **options):
    """Predictions that are not within 15 % of what is written: format, mode, both figures."""
    found = []
    for name, ending in FORMATS.items():
        for mode, size in seen.predicted[name].items():
            out = str(tmp_path / f"{mode}{ending}")
            written = traceconv.merge(*paths, out=out, mode=mode, force=True, **options).written
            wrote = sum(one.content for one in written)
            if not 0.85 * wrote <= size <= 1.15 * wrote:
                found.append((name, mode, size, wrote))
    return found
