"""Deliveries and rejects of micro-batches, made and counted where messages are matched."""
