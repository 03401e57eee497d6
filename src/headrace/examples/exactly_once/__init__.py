"""A crash at the worst moment, with and without transactions."""
