"""The version of the package and of the formats that it writes."""

__version__ = "0.1.0"

RAW_EVENT_LOG = 1
"""Version of the raw event log, our own input format (``{"rawlog": 1}``)."""

REPORT = 1
"""Version of the JSON document of a run (``--json``, ``--report FILE.json``)."""

SHARD = 2
"""Version of the folder that ``--shard`` writes and ``join`` reads."""

RANK_FILE = 11
"""Version of the columns of a rank in a file: between workers, in shards and in stores."""

STORE = 2
"""Version of the file that ``traceconv pack`` writes."""
