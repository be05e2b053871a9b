"""The routes of a node: what is wanted on each side, what was told, and what is confirmed."""
