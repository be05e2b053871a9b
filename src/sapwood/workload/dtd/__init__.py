"""DTDs as values, and the element graph they describe."""
