"""Codes in columns: kinds of rows, classes of work, sources of steps."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """Shape of an event row."""

    SLICE = 0
    INSTANT = 1


class OpClass(IntEnum):
    """What an event row does; the overlap analysis and the step trace are made from it."""

    OTHER = 0
    COMPUTE = 1  # a device task that carries out an operator
    COMM = 2  # a whole communication operator; overlap counts these
    COMM_TASK = 3  # a part of one, on a plane; overlap does not count these
    COPY = 4
    WAIT = 5  # events, notifications, synchronisation
    HOST = 6
    UNCLASSIFIED = 7  # a device task of a type that no table of its producer has
    # rows of Layer.STEP
    ITERATION = 10
    FP_BP = 11  # forward and backward
    TAIL = 12  # after backward: "Iteration Refresh"
    REDUCE = 13
    INTERVAL = 14  # between iterations: data preparation
    # rows of Layer.OVERLAP
    COMPUTING = 20
    COMMUNICATION = 21
    NOT_OVERLAPPED = 22
    FREE = 23
    COPYING = 24  # memory copies and fills
    COPY_NOT_OVERLAPPED = 25  # neither computing nor communication meanwhile
    UNCLASSIFIED_ALONE = 26  # unclassified tasks, nothing of the above meanwhile


class StepSource(IntEnum):
    """Where the boundaries of a step come from."""

    RECORDED = 0  # the source has a track of steps
    HOST_MARKS = 1  # the framework's annotations on the host ("ProfilerStep#12")
    WHOLE_RANGE = 2  # no steps recorded: one step from the first event to the last


WHOLE_RANGE = "Whole range"
"""The name of the one step of a capture without steps."""


class Covered(IntEnum):
    """How the device work of a step is known."""

    NOT = 0  # nothing: its device work was not recorded
    TIMELINE = 1  # recorded: figures are computed from device rows
    VENDOR_TABLE = 2  # the vendor's own table of steps has its figures
