"""The links of a node: their numbers, acknowledgements and epochs."""
