"""Joins of messages with earlier messages, many queries at once."""
