"""What operators of a mesh see and change, and how subscriptions are confirmed and moved."""
