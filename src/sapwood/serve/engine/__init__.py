"""The engine of the service, a process of its own: it evaluates messages and writes the log."""
