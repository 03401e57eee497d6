"""Count the views of each user."""
