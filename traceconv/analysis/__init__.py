"""Analyses: tables, findings and verdicts from the columns of the ranks.

An analysis has two halves. The first looks at ONE rank, after the passes that make its steps and
its overlap, and boils its columns down to *facts*: small, made of plain values and numpy arrays,
fit to be sent to another process. The second is a function over the facts of all ranks. So only
one rank is in memory at a time, ranks can be worked on side by side, and what compares ranks
never touches their events.

:mod:`traceconv.analysis.tables.catalog` is the registry of the tables (``facts`` and ``tables``),
:mod:`traceconv.report.table_text` writes them. Modules whose name begins with ``_`` are shared.
"""
