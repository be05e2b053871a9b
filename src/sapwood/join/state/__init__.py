"""The state of joins: earlier messages, windows and event times."""
