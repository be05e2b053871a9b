"""Routes, the conditions by which brokers forward messages, and their evaluation with the subscriptions."""
