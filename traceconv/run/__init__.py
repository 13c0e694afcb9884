"""How a merge is carried out: rank by rank, by workers and shards, or by copying bytes.

:mod:`~traceconv.run.stages` is what is done with one rank, :mod:`~traceconv.run.merging` what all
of them together decide, :mod:`~traceconv.run.workplace` who works where; shards are a merge in
parts, and :mod:`~traceconv.run.copying` is the short way where nothing is asked for but the bytes.
"""
