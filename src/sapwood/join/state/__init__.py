"""The join state: values of earlier messages, windows, event times and statistics."""
