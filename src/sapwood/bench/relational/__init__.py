"""Experiments with subscriptions in tables: those of Tian et al. (SIGMOD 2004), and comparisons of engines.

Every measurement runs in a process of its own, by wall time, because DuckDB uses all cores.
"""
