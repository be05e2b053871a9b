"""Explanations of queries and matches, and warnings about suspicious queries."""
