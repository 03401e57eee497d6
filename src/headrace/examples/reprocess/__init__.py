"""Word counts that are computed again: as a batch, as a stream, and by a second version."""
