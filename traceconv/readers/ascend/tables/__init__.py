"""Tables beside or in place of a timeline.

``names`` knows which files are tables and adds them to captures and traces, ``load`` reads them;
``reader`` and ``kernels`` make captures and slices of tables without a timeline.
"""
