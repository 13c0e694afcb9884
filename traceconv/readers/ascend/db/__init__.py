"""Databases of the Ascend profilers."""
