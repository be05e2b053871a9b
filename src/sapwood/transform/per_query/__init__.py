"""One operator plan for each transformation: the baseline of the shared plan."""
