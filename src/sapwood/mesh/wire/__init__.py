"""What brokers of a mesh send each other as bytes."""
