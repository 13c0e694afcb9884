"""The C parts, and where they are loaded."""
