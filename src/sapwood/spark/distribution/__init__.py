"""Snapshots of the index and how they reach the workers."""
