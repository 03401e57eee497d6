"""Write the output of a batch, once."""
