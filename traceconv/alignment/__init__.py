"""Clocks of ranks from the collectives they took part in."""
