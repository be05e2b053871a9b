"""For-where-return queries: text to clauses to tree patterns and a result template."""
