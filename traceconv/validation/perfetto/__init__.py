"""What Perfetto's importer refuses or misreads."""
