"""How the output of a batch is written, once."""
