"""Experiments with a mesh of brokers: real processes on NATS JetStream, on this machine."""
