"""Databases of the Ascend profilers.

``reader`` finds them, ``content`` reads one and its counters, ``export`` is the database being
read, ``device`` has tasks and communication, ``host`` calls, operators and launch arrows.
"""
