"""Evaluation by lxml, in a child process, of what has no tree pattern."""
