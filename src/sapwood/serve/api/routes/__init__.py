"""The routes of the HTTP API, by concern."""
