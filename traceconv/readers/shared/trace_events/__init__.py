"""Trace-event JSON as columns; :mod:`.timeline` is what readers call, a step of reading per module.

``window`` brings bytes, ``keys`` finds the list of events in them, ``reading`` drives a tier over
it (``decode`` in Python, ``native`` in C) and calls ``salvage`` where a tier stops; ``tables``
holds the columns that come out. Then ``naming`` and ``place`` turn lanes into tracks, ``pairs``
joins begins and ends, ``samples`` makes counters, ``arrows`` binds flows to slices.
"""
