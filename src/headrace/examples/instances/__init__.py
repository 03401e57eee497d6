"""Three instances that answer for each other."""
