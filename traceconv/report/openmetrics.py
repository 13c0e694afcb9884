"""The figures of the last window of a job as OpenMetrics text, for Prometheus.

Specification: https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md.
Unknown figures have no sample; lengths are in seconds, as its naming rules ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from traceconv.core.markup import visible

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def text(document: Mapping[str, Any] | None, windows: int, failed: int) -> str:
    """The exposition of all metrics.

    Args:
        document: of the last window (:meth:`traceconv.WatchedWindow.as_dict`); None before it.
        windows:  judged so far.
        failed:   of these, those that could not be judged.
    """
    return "".join(f"{line}\n" for line in [*_lines(document, windows, failed), "# EOF"])


def _lines(document: Mapping[str, Any] | None, windows: int, failed: int) -> Iterator[str]:
    yield from _family("windows", "counter", "Windows judged.", [("_total", {}, windows)])
    about = "Windows that could not be judged."
    yield from _family("failed_windows", "counter", about, [("_total", {}, failed)])
    if document is None:
        return
    figures, ranks = document["figures"], document["ranks"]
    gain_ns, straggler = figures.get("straggler_gain_ns"), figures.get("straggler_rank")
    rank_label = {} if straggler is None else {"rank": str(straggler)}
    gauges: tuple[tuple[str, str, list[tuple[dict[str, str], Any]]], ...] = (
        ("last_window", "Number of the last window.", [({}, document["window"])]),
        ("ranks", "Ranks in the last window.", [({}, len(ranks))]),
        ("missing_ranks", "Ranks that did not come.", [({}, len(document["missing_ranks"]))]),
        ("step_seconds", "Mean step.", [({}, _seconds(figures.get("step_ns")))]),
        ("slowdown_ratio", "Step without delays over the ideal step.",
         [({}, figures.get("slowdown"))]),
        ("time_share_ratio", "Share of the device time of a step.",
         [({"class": key.removesuffix("_share")}, share)
          for key, share in figures.items() if key.endswith("_share")]),
        ("straggler_rank", "The rank that delays the others; no sample without a verdict.",
         [({}, straggler)]),
        ("straggler_seconds", "What this rank costs per step.", [(rank_label, _seconds(gain_ns))]),
        ("verdict_delay_seconds", "From the last file of the window to its verdict.",
         [({}, document["waited_s"])]),
    )  # fmt: skip
    if verdict := figures.get("verdict"):
        about = "The verdict on ranks."
        yield from _family("verdict", "info", about, [("_info", {"verdict": verdict}, 1)])
    for name, help_text, values in gauges:
        samples = [("", labels, value) for labels, value in values if value is not None]
        if samples:
            yield from _family(name, "gauge", help_text, samples)


def _family(
    name: str, kind: str, help_text: str, samples: Sequence[tuple[str, Mapping[str, str], Any]]
) -> Iterator[str]:
    name = f"traceconv_{name}"
    yield f"# TYPE {name} {kind}"
    if name.endswith("_seconds"):
        yield f"# UNIT {name} seconds"
    yield f"# HELP {name} {help_text}"
    for ending, labels, value in samples:
        label_text = ",".join(
            f'{key}="{visible(label.translate(_ESCAPED))}"' for key, label in labels.items()
        )
        yield f"{name}{ending}{f'{{{label_text}}}' if label_text else ''} {value!r}"


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
