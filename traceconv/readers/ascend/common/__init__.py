"""What the readers of this family share: identity, files and reading of captures."""
