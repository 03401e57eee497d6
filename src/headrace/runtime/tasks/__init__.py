"""Engine tasks in a batch: packed records in, packed records out."""
