"""Experiments with the pipeline: against the matcher alone, against xpath_boolean, and its memory over time.

Every measurement runs in a process of its own, so that none profits from the warm JVM of another.
"""
