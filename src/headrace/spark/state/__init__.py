"""Stores over Spark's state: blobs, and ordered maps made of them."""
