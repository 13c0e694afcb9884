"""The benchmark: traceconv against a naive converter, other tools and its own limits."""
