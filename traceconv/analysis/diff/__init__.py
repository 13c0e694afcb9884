"""Two runs side by side: what the time of their steps went to, and whether that differs."""
