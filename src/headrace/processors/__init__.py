"""What each operation does with one record."""
