"""Raw data of the CANN collector, and of frameworks beside it."""
