"""Messages, the responses of the provider and the delivery reports of the phones."""
