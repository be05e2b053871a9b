"""XPath 1.0: text to syntax tree to tree pattern."""
