"""Webhooks: deliveries that are sent to a subscriber's URL, signed and in order."""
