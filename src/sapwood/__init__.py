"""Sapwood: match XML messages against very many standing XPath queries at once."""
