"""Commands that match with the tables of the relational engine."""
