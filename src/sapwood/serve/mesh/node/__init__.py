"""The node of a mesh in the engine: matching, storing and sending for it."""
