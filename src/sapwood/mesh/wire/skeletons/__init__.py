"""Skeletons of messages: the tag paths and tested values by which inner brokers route."""
