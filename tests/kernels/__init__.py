"""Tests of the kernel stages: values by hand, brute-force oracles, laws for any input."""
