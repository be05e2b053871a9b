"""What all experiments share: the runner, isolation in processes, timing, the result model and its formats.

Experiments run in the process that is measured, so the modules they import stay light: only `runner`,
`terminal_tables` and `plots` load rich or matplotlib.
"""
