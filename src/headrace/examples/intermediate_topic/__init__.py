"""A slow step behind a topic with more partitions than the source has."""
