"""The version, for the package and for the metadata of its outputs."""

__version__ = "0.1.0"
