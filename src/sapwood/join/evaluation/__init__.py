"""Join evaluation: witnesses of a message, templates on the state, residual checks and bindings."""
