"""One attempt, from an empty folder to its evidence."""
