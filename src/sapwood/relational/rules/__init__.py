"""Queries as rules, and the access structures that hold them."""
