"""The version, for the package and for what its outputs say of themselves."""

__version__ = "0.1.0"
