"""The relational engine on Spark."""
