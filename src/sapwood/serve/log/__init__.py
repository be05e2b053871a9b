"""The message log: messages, what they are delivered to, and how far subscribers have read."""
