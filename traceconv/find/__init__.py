"""Finding: which files are captures, of which reader, and of which rank.

:mod:`.registry` asks the readers what they find, :mod:`.capture_ranks` tells the rank of each
capture, :mod:`.capture_windows` joins the captures of one rank, and :mod:`.unread` explains files
that no reader takes.
"""
