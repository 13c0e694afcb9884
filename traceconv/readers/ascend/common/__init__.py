"""What the readers of this family share."""
