"""What a store is, and the stores that need no runtime."""
