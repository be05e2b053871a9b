"""XSCL, the language of joins between messages: text to blocks, links and a template."""
