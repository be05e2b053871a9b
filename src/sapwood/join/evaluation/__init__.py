"""The evaluation of joins: witnesses, shared evaluation, and residual checks."""
