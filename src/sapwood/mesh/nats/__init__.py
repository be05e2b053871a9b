"""The NATS side of a broker of the mesh: links over JetStream, the shared directory, servers for trials."""
