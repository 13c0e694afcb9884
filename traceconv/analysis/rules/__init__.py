"""Rules: what ``traceconv diagnose`` looks for."""
