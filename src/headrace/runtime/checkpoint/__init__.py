"""What a checkpoint holds, and how a start checks it."""
