"""What a reader knows of its source that passes and analyses decide by.

Facts that are only displayed are in ``Trace.notes``, which no code reads.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Hints(msgspec.Struct, frozen=True):
    """Facts about the source of a trace. Every one is optional: "" or empty is *not known*.

    Attributes:
        vendor: "ascend" where device rows are tasks that carry out operators; "" for kernels that
            operators launch. Set by the Ascend readers; read by the overlap analysis (records of
            waiting are work of an NPU and none of a GPU) and by tables of operators and kernels.
        free_rule: what bounds the span that idle time is measured in, "busy" or "device" (see
            :data:`traceconv.passes.overlap.RULES`), where the source has no lane of its own to
            compare with. Set by the readers of GPU profilers; read by the overlap analysis, and by
            the tables of modules (lanes of scopes are ranges of the host there).
        range_names: names of host slices that are ranges of the user. Set by kineto; read by the
            projection pass.
        phase_names: names of host slices that are "forward" or "backward" (the value). Set by
            paddle; read by the passes of steps and of projection.
        device_memory_bytes: memory of each GPU by its number. Set by kineto, nsight and paddle;
            read by the memory tables.
        device_names: what each GPU is called, by its number. Set by the same; read by the rules of
            what operators reach of what the device can do.
        tables_only: whether event rows were made of a table of operators, so that launches, waits
            and the host are unknown. Set by the reader of Ascend tables; read by the overlap pass
            and the tables of steps, which then use those of the profiler.
        partial_device: whether rows of the device are known to be some only of those that ran, or
            some are not known to be of any step: what they do not fill is unknown, not idle. Set by
            the readers of Ascend tables and of XSpaces; read by the pass of attribution, by tables
            of what the device did, and by rules.
        steps_told: whether every row of the device that is of a step says so, or an arrow to it
            does: no other row is of one. Set by the readers of XSpaces and of their JSON; read by
            the pass of attribution.
        made_steps: of what the rows of steps were made, where the source has none: "host" (marks of
            the framework) or "whole" (nothing marks steps: one over all). Set by the pass of steps,
            and by the Perfetto reader for what we wrote; read by the passes of steps and of
            attribution.
        cpu_percent: utilisation of the CPU by scope ("process", "system"), percent, a value per
            collection window that has one. Set by paddle; read by the table of CPUs.
    """

    vendor: str = ""
    free_rule: str = ""
    tables_only: bool = False
    partial_device: bool = False
    steps_told: bool = False
    made_steps: str = ""
    range_names: tuple[str, ...] = ()
    phase_names: Mapping[str, str] = msgspec.field(default_factory=dict)
    device_memory_bytes: Mapping[int, int] = msgspec.field(default_factory=dict)
    device_names: Mapping[int, str] = msgspec.field(default_factory=dict)
    cpu_percent: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)


class HintsBuilder(msgspec.Struct):
    """:class:`Hints` while a trace is being read; the fields are those of the finished ones."""

    vendor: str = ""
    free_rule: str = ""
    tables_only: bool = False
    partial_device: bool = False
    steps_told: bool = False
    made_steps: str = ""
    range_names: list[str] = msgspec.field(default_factory=list)
    phase_names: dict[str, str] = msgspec.field(default_factory=dict)
    device_memory_bytes: dict[int, int] = msgspec.field(default_factory=dict)
    device_names: dict[int, str] = msgspec.field(default_factory=dict)
    cpu_percent: dict[str, list[float]] = msgspec.field(default_factory=dict)

    def finish(self) -> Hints:
        """The hints, frozen; later changes of the builder do not reach them."""
        return Hints(
            self.vendor,
            self.free_rule,
            self.tables_only,
            self.partial_device,
            self.steps_told,
            self.made_steps,
            tuple(self.range_names),
            dict(self.phase_names),
            dict(self.device_memory_bytes),
            dict(self.device_names),
            {scope: tuple(values) for scope, values in self.cpu_percent.items()},
        )
