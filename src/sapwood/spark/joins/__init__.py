"""Joins as stateful stream processing."""
