"""A model of Kafka's transactions, and a simulation that drives the real sink against it."""
