"""A deterministic simulator of a mesh: the same nodes, with virtual time and faults from one seed."""
