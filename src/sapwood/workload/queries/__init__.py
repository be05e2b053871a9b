"""Random queries, transformations and joins."""
