"""Which rank delays the others, and which links are slow."""
