"""What is read before the first attempt: specs, skills, the project configuration."""
