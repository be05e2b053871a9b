"""For-where-return plans over path-tuple streams: which nodes each group of a query's result holds."""
