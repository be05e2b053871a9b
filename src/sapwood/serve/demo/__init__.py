"""The demo of the service: made-up streams, subscriptions and subscribers, to look at and listen to."""
