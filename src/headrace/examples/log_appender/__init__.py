"""Send the log of a program to a topic."""
