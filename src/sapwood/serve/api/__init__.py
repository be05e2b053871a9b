"""The HTTP API: routes, requests and answers."""
