"""The ``profiler`` folder of MindSpore before 2.4.

``reader`` and ``files`` find it, ``content`` reads its timeline and operators, ``steps`` the step
table with the collectives, ``host`` what ``host_info`` records; ``tables`` are its side tables.
"""
