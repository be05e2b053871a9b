"""The shared automaton: path trie, dataguide, predicate index and twig join."""
