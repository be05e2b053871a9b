"""Numbers, durations and escaped strings as the query languages write them."""
