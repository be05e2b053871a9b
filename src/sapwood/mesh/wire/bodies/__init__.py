"""The bodies of messages as they cross links: formats, and the dictionaries that some of them use."""
