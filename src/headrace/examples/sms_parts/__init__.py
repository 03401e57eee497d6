"""Text messages that arrive in parts."""
