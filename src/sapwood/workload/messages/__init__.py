"""Random messages that are valid against a DTD."""
