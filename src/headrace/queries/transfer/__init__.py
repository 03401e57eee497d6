"""Transfers a shard from one instance to another."""
