"""The HTTP server of an instance."""
