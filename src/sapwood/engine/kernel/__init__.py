"""The compiled kernel: the automaton in C, which reads a message and matches it in one pass."""
