"""Snapshots of the compiled subscriptions, and matching in the workers."""
