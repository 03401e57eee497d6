"""Greetings in two languages, and errors of each kind."""
