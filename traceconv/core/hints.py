"""Facts that a reader knows about its source and that passes and analyses depend on.

Facts that are only displayed are in ``Trace.notes``, which no code reads.
"""

from __future__ import annotations

import msgspec


class Hints(msgspec.Struct):
    """Facts about the source of a trace. Every one is optional: "" or empty is *not known*.

    Readers fill them in (``TraceBuilder.hints``); of a trace they do not change any more.

    Attributes:
        vendor: "ascend" where device rows are tasks that carry out operators; "" for kernels that
            operators launch. Set by the Ascend readers; read by the overlap analysis (records of
            waiting are work on an NPU but not on a GPU) and by tables of operators and kernels.
        free_rule: what bounds the interval in which idle time is measured, "busy" or "device" (see
            :data:`traceconv.passes.overlap.RULES`), where the source has no idle track to compare
            with. Set by the readers of GPU profilers; read by the overlap analysis, and by the
            tables of modules (with these readers, tracks of scopes are host ranges).
        range_names: names of host slices that are user ranges. Set by kineto; read by the
            projection pass, and by the table of ranges.
        ranges_projected: whether the profiler projected them onto the device itself. Set by kineto;
            read by the projection pass, which then leaves them out.
        batch_sizes: the batch size of passes of an inference server, by the name of the host slice.
            Set by kineto; read by the pass that finds the operators of graphs' replays.
        phase_names: names of host slices that are "forward" or "backward" (the value). Set by
            paddle; read by the passes of steps and of projection.
        device_memory_bytes: memory of each GPU by its number. Set by kineto, nsight and paddle;
            read by the memory tables.
        device_names: the name of each GPU by its number. Set by the same readers; read by the rules
            that compare operators with the peak of the device.
        tables_only: whether event rows were made from a table of operators, so that launches, waits
            and the host are unknown. Set by the reader of Ascend tables; read by the overlap pass
            and the tables of steps, which then use the figures of the profiler.
        supplement: whether it is a dump or log that a process may leave beside its timeline. Set by
            the readers of the flight recorder, memory snapshots and NCCL Inspector; read where
            several captures of a rank are joined: it does not count as a window there, and its
            operations count in no figure.
        partial_device: whether the device rows are known to be incomplete, or some of them may
            belong to no step: time that they leave is unknown, not idle. Set by the readers of
            Ascend tables and of XSpaces; read by the attribution pass, by tables of device work,
            and by rules.
        partial_steps: numbers of the steps in which alone they are incomplete. Set by the reader of
            Ascend tables; read by the attribution pass, which covers the other steps.
        steps_told: whether every device row of a step names its step, or has a flow that does: no
            other row belongs to a step. Set by the readers of XSpaces and of their JSON; read by
            the attribution pass.
        made_steps: what the rows of steps were made from, where the source has none: "host" (the
            framework's annotations), "passes" (of a server of language models) or "whole" (one step
            for the whole capture). Set by the steps
            pass, and by the Perfetto reader for files that traceconv wrote; read by the steps and
            attribution passes.
        cpu_percent: utilisation of the CPU by scope ("process", "system"), percent, a value per
            collection window that has one. Set by paddle; read by the table of CPUs.
    """

    vendor: str = ""
    free_rule: str = ""
    tables_only: bool = False
    supplement: bool = False
    partial_device: bool = False
    partial_steps: list[int] = msgspec.field(default_factory=list)
    steps_told: bool = False
    made_steps: str = ""
    range_names: list[str] = msgspec.field(default_factory=list)
    ranges_projected: bool = False
    batch_sizes: dict[str, int] = msgspec.field(default_factory=dict)
    phase_names: dict[str, str] = msgspec.field(default_factory=dict)
    device_memory_bytes: dict[int, int] = msgspec.field(default_factory=dict)
    device_names: dict[int, str] = msgspec.field(default_factory=dict)
    cpu_percent: dict[str, list[float]] = msgspec.field(default_factory=dict)
