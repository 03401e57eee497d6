"""Orders and revenue of stores, in total and in windows, joined with addresses."""
