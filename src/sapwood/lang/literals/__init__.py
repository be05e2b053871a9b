"""Numbers, durations, sizes and escaped strings as queries and settings write them."""
