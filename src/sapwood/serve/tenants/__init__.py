"""The subscriptions of each tenant in a broker, and what they make of messages."""
