"""Accuracy harness: makes decode traces nobody tuned for, and scores the command line on them.

The generator stands apart from the package: it shares no table and no code with it, so that
a classifier cannot be right merely because both sides were written from the same list.
"""
