"""Comparing runs: what changed between two captures, where, and whether to believe it.

In: runs with the times of every step (`baseline`, `record`). Out: a `Comparison`, from
which `outcome` tells whether a check passes. Saved runs are compared with numpy alone;
what needs a trace stands in `record` and is imported only for one.
"""
