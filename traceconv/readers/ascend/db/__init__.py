"""Databases of the Ascend profilers.

``reader`` finds them, ``database_tables`` reads one. ``event_tables`` has the layouts of its
tables, ``export`` is the database being read, ``device`` adds tasks and communication, ``host``
calls, operators and flows, ``counters`` samples.
"""
