"""The profiler folder of old MindSpore."""
