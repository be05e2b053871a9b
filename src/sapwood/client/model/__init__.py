"""Messages, deliveries and other resources of a broker, as its clients see them."""
