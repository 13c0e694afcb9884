"""One module per verb of the library."""
