"""The state machines of a broker in a mesh: no I/O, no clock, no randomness; see `node`."""
