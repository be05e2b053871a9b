"""The DuckDB database: schema, loading, vacuum, snapshots and synchronisation with a store."""
