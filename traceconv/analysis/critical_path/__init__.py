"""The critical path across ranks."""
