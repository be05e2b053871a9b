"""Commands that run a broker service, or connect to one."""
