"""The SQL statements that match a batch, their dialects and the cost model."""
