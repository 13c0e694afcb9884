"""A simulated training job, independent of how alignment and stragglers model one.

``Job`` says what is simulated, ``run`` does it in true time, ``trace`` and ``write_kineto`` give
what profilers saw of it, ``truth`` and ``instants`` what a verdict and an alignment are measured
by. ``python -m tests.scenarios`` measures them on many jobs.
"""

from .captures import capture, recorded, trace, traces, write_kineto
from .jobs import BASE_NS, Clock, Delay, Job
from .noise import SHAPES
from .simulate import Run, gain_ns, run, true_ns, without_delays
from .truth import MATERIAL, Truth, instants, truth

__all__ = [
    "BASE_NS", "MATERIAL", "SHAPES", "Clock", "Delay", "Job", "Run", "Truth", "capture", "gain_ns",
    "instants", "recorded", "run", "trace", "traces", "true_ns", "truth", "without_delays",
    "write_kineto",
]  # fmt: skip
