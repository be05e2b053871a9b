"""The pipeline: configuration, micro-batches, the batch log and signals."""
