"""Compare two runs: the time of their steps by item, and whether it differs."""
