"""Linear paths of subscriptions and tag paths of messages."""
