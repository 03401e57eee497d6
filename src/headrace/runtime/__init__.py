"""Runs a topology in batches, on any host: it knows no Spark, no Arrow and no socket."""
