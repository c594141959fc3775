"""What is kept after the attempt: the run store, the results files, the history."""
