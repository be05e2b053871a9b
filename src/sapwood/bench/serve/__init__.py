"""The service: durable publishing, live delivery and restarts, beside the same work in one process."""
