"""The routes of the HTTP server, by what they read."""
