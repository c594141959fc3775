"""Adapters to the agents: how each is found, given its home, started and read."""
