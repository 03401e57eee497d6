"""Messages and the responses of the provider that sends them."""
