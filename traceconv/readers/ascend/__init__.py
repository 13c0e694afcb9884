"""Readers of the output of Ascend's profilers: exported timelines, databases, tables, raw data.

A capture of one rank may hold the same run several times: as JSON, as a database, as tables, as
the device's own records. The readers are asked in the order of this list, and each leaves to the
later ones what it does not claim:

==================  =============================================================================
``trace_view``      ``trace_view.json``: PyTorch, MindSpore from 2.4 on
``msprof``          ``msprof_*.json`` in ``PROF_*``: CANN, MindSpore before 2.4
``db``              ``ascend_*_profiler_*.db``, ``msprof_*.db``
``mindspore``       the ``profiler`` folder of MindSpore before 2.4, ``host_info``
``raw``             records of the collector in ``PROF_*/**/data``, of runs that were not analysed
``tables``          CSV, JSON and databases of sums; beside a timeline they are its side tables
==================  =============================================================================

``common`` has what they share: which rank, host and clock a capture has (``identity``), which
files belong to it (``capture_files``), and reading several timelines in turn (``reading``). Names
of lanes and operators are in :mod:`traceconv.readers.shared.ascend_lanes`, as other files show
Ascend's lanes, too. In every package, ``reader`` finds captures and is imported on every run;
``content`` reads them.
"""

READERS = {
    "ascend_db": "db.reader",
    "ascend_raw": "raw.reader",
    "ascend_tables": "tables.reader",
    "mindspore": "mindspore.reader",
    "msprof": "msprof",
    "trace_view": "trace_view",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
