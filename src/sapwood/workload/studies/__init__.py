"""The workloads of published studies."""
