"""Every option of traceconv, declared once.

* :mod:`.values` reads what people type: one parser for each kind of value.
* :mod:`.declaration` makes a keyword of the library and an option of the command line from one
  field of a dataclass.
* :mod:`.groups` declares the options, one dataclass for each group and one for each verb.

To add an option, add a field to a group, run ``python -m tests.support.option_types``, and use it.
"""
