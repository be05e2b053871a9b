"""The calls of the HTTP API, and the reading of their answers, without I/O."""
