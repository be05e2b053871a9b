"""Kafka as source and sink of a pipeline: records in, deliveries and rejects out."""
