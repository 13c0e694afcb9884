"""How a run is carried out: rank by rank, by workers and shards, or by copying bytes.

:mod:`.ranks` is the loop over ranks, :mod:`.stages` what is done with each of them,
:mod:`.merging` what all of them together decide, :mod:`.executor` who does the work; shards are a
merge in parts, and :mod:`.copying` is the short way where the bytes are only to be copied.
"""
