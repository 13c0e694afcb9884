"""Answers for agents: the analyses as tools of the Model Context Protocol.

Tools (:mod:`.tools`) return the JSON documents that ``--json`` prints, reduced to what fits an
answer (:mod:`.answers`); :mod:`.workspace` keeps inputs, outputs and names within what the user
allowed; :mod:`.server` is the only module that needs the package ``mcp``.
"""
