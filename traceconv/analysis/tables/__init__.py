"""Tables of figures: what ``traceconv stats`` prints."""
