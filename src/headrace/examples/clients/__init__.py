"""A producer with callbacks, and a group of consumers."""
