"""The broker as a service: HTTP, durable deliveries, webhooks, tenants and keys."""
