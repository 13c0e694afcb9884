"""Identity, files and reading of captures, for all readers of this family."""
