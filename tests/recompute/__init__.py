"""Every figure that ``traceconv`` states, recomputed from the trace it writes.

Nothing of the package under test is used to compute: a capture is merged to files (detail view, no
clock moved), the files are decoded by ``json`` and by the ``perfetto`` package's own classes
(:mod:`.written`), and the tables, findings, headline and report are recomputed row by row with
plain Python (:mod:`.intervals`, :mod:`.steps`, :mod:`.host`, :mod:`.comm`,
:mod:`.device`, :mod:`.idle`, :mod:`.work`, :mod:`.waiting`, :mod:`.losses`, :mod:`.rules`,
:mod:`.report`), from the definitions printed with each table. Tables of files that leave nothing in
the trace are in :data:`.capture.ELSEWHERE`, with the test that compares them.
:mod:`.compare` counts figures that are equal, unknown on either side, or different.

``python -m tests.recompute [PATH ...]`` does so for every capture below the paths (without one:
of ``../shared/data``); ``tests/test_recompute.py`` does for small ones.
"""
