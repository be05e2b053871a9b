"""The messages of a node: what came from which source, and what has become of it."""
