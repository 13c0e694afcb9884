"""Space of a run: temporary files, and large arrays on disk where memory is limited."""
