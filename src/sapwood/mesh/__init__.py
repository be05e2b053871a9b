"""Brokers on many sites that behave as one: messages are routed by content, over NATS."""
