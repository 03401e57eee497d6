"""The content of a checkpoint, and the checks of a start."""
