"""Merging: what all ranks together decide, and the one output that is written of them.

:mod:`.merge_ranks` is the usual way, :mod:`.copying` the short one where bytes are only copied,
:mod:`.shards` a merge in parts, and :mod:`.run_report` what a run says of itself. The package is
not called ``merge``, which is a public function of :mod:`traceconv`.
"""
