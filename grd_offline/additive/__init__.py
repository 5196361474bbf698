"""Additive models: a target as a sum of functions of one or a few inputs, found by their evidence.

`basis` has the functions of single inputs, `equations` sums them over the steps behind each amount,
`search` fits their variances by the evidence and, with `choosing`, decides which of them stay.
`labels` is the same for outcomes that are one of two, and `hidden` measures what amounts cannot
show. `dynamics` models single transitions.
"""
