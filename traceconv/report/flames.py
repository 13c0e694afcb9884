"""Call paths for viewers of flame graphs: speedscope's own format, and collapsed stacks."""

from __future__ import annotations

from collections.abc import Iterator

from traceconv.core.json_text import encoded
from traceconv.core.side_tables import ABSENT, DataTable

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_MEASURES = {"device": "Device Time(ns)", "host": "Self Time(ns)"}


def speedscope(paths: DataTable) -> str:
    """The table ``stack_path`` as a file of speedscope: per rank a profile of device time, where
    launches are recorded, and one of host time; ns.

    Source: the schema of jlfwong/speedscope, ``file-format-spec.ts``.
    """
    frames: dict[str, int] = {}
    profiles = []
    for rank, measure, rows in _ranks(paths):
        samples = [
            [frames.setdefault(name, len(frames)) for name in path.split(";")] for path, _ in rows
        ]
        weights = [ns for _, ns in rows]
        profiles.append({
            "type": "sampled", "name": f"Rank {rank}, {measure} time", "unit": "nanoseconds",
            "startValue": 0, "endValue": sum(weights), "samples": samples, "weights": weights,
        })  # fmt: skip
    document = {
        "$schema": _SCHEMA, "exporter": "traceconv", "name": "traceconv", "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]}, "profiles": profiles,
    }  # fmt: skip
    return encoded(document).decode()


def collapsed(paths: DataTable) -> str:
    """The same as lines "Rank 0, device time;frame;frame ns", as ``flamegraph.pl`` reads them."""
    return "".join(
        f"Rank {rank}, {measure} time;{path or '(no path)'} {ns}\n"
        for rank, measure, rows in _ranks(paths)
        for path, ns in rows
    )


def _ranks(paths: DataTable) -> Iterator[tuple[int, str, list[tuple[str, int]]]]:
    """Rank, measure, and (path, ns) of the paths that took time."""
    columns = paths.columns
    ranks, texts = columns["Rank"].tolist(), columns["Path"].tolist()
    for rank in dict.fromkeys(rank for rank in ranks if rank != ABSENT):
        for measure, key in _MEASURES.items():
            paths_of_ranks = zip(ranks, texts, columns[key].tolist(), strict=True)
            rows = [(path, ns) for owner, path, ns in paths_of_ranks if owner == rank and ns > 0]
            if rows:
                yield rank, measure, rows
