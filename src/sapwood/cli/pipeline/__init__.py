"""Commands of pipelines on Spark."""
