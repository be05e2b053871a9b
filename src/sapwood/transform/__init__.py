"""Transformations: for-where-return queries evaluated by one shared plan, or by one plan per query."""
