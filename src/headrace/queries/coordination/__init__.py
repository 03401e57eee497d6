"""Answers for the whole application: reads of all shards, wherever they are, at one snapshot."""
