"""Figures to pages: HTML, Markdown, JSON, text."""
