"""What a person touches: the commands and what they print."""
