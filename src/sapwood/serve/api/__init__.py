"""The HTTP API: routes, requests and answers."""

from sapwood.serve.api import path_text

path_text.register()  # before any module has routes
