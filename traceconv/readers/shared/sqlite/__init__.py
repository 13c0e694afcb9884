"""SQLite databases as columns."""
