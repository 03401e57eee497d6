"""What runs where, and what the next batch reads."""
