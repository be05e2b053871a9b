"""Forecasts for a mesh that is not built yet: the traffic of links, and the memory of brokers."""
