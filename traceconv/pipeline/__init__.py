"""How a merge is carried out: rank by rank, by workers and shards, or by copying bytes.

:mod:`~traceconv.pipeline.stages` is what is done with one rank, :mod:`~traceconv.pipeline.merging` what all
of them together decide, :mod:`~traceconv.pipeline.executor` who works where; shards are a merge in
parts, and :mod:`~traceconv.pipeline.copying` is the short way where nothing is asked for but the bytes.
"""
