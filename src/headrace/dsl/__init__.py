"""What users write; adds nodes, runs nothing."""
