"""Early projection: what subscriptions read of messages, and messages without the rest."""
