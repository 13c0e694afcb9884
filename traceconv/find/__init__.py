"""Finding: which files are captures, which reader reads them, and the rank of each.

:mod:`.registry` lists the readers, :mod:`.capture_ranks` determines the rank of each capture,
:mod:`.capture_windows` joins the captures of one rank, and :mod:`.unread` explains files that no
reader takes.
"""
