"""Experiments with joins of messages, shaped like those of Hong et al. (SIGMOD 2007).

The charts of the paper are lost; the statements of its text stand beside ours.
"""
