"""Delivery to subscribers: how what is in their inboxes reaches them."""
