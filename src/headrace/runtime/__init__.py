"""How a topology runs in batches, on any host: it knows no Spark, no Arrow and no socket."""
