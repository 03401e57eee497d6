"""Reads the stores of an application while its instances and the application itself are killed."""
