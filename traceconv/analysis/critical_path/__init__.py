"""The critical path across ranks: what is gathered of a rank, and the walk over all of them."""
