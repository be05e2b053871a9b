"""Experiments with for-where-return queries: sharing and optimisation of plans, cost of publishing, changes.

Workloads are generated, as in the YFilter thesis; the cost of publishing also uses published NITF messages.
"""
