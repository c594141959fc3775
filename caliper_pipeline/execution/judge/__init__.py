"""Gives the results of checks: a script (`assert:`) or a model (`expect:`)."""
