"""The service as a broker of a mesh."""
