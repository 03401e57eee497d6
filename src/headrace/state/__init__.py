"""The interfaces of stores, and the stores that need no runtime."""
