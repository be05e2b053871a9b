"""The harness of all experiments: runner, isolation in processes, timing, result model and output formats.

Experiments run in the process that is measured, so the modules they import stay light: only `runner`,
`terminal_tables` and `plots` load rich or matplotlib.
"""
