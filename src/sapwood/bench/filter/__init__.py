"""Experiments with matching: the cost of a message, loading, churn, memory, recursion and growth."""
