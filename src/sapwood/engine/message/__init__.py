"""One message: its source, encoding, document type, elements and string-values."""
