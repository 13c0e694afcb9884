"""Kernels by the clock of the cores they ran at."""

from traceconv.analysis.tables import sampled
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource

TABLE = next(table for table in sampled.TABLES if table.name == "frequency_kernel")


def facts(folder, clocks=((0, 1800), (100, 1790), (200, 900)), devices=(0,)):
    """A kernel of 10 ns at the first two clocks and of 20 ns at the last, another only there."""
    build = TraceBuilder(Capture("test", FileSource(folder, "x"), ("x",), rank=0))
    counter = build.track(Layer.COUNTER, "AI Core Freq", "AI Core Freq", unit="MHz")
    for time, value in clocks:
        build.counter(counter, time, value)
    for device in devices:
        stream = build.track(Layer.DEVICE, "Stream 1", device=device)
        for start, length, name in ((5, 10, "a"), (105, 10, "a"), (205, 20, "a"), (250, 9, "b")):
            build.slice(stream, start, length, name, op=OpClass.COMPUTE)
    return TABLE.facts(build.finish())


def test_a_kernel_is_slower_at_a_lower_clock(tmp_path):
    """Clocks are rounded to 50 MHz; the kernel that ran at one clock only is left out."""
    rows = TABLE.build([(0, facts(tmp_path))])
    columns = ("Kernel", "Value", "Count", "Avg Time(ns)", "Slower(%)")
    assert sorted(zip(*(rows[name].tolist() for name in columns), strict=True)) == [
        ("a", 900, 1, 20, 100.0), ("a", 1800, 2, 10, 0.0),
    ]  # fmt: skip


def test_a_clock_that_does_not_change_and_several_devices_tell_nothing(tmp_path):
    """Of two devices the counter does not say which it is of."""
    assert not facts(tmp_path, ((0, 1800),))
    assert not facts(tmp_path, devices=(0, 1))
