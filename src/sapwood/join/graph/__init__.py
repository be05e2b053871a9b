"""Join graphs, their reduction and their templates."""
