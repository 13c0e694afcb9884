"""Running: each rank is read and passed by a worker, here or elsewhere.

:mod:`.rank_loop` is the loop over ranks, :mod:`.stages` what is done with each of them,
:mod:`.executor` who does the work, :mod:`.spill` how a rank waits on disk until it is needed.
"""
