"""What an evaluation means: plain values and pure functions."""
