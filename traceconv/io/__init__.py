"""Bytes from files, folders, archives, URLs, and back."""
