"""Connections, retries and event streams of both clients."""
