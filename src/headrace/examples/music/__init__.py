"""Charts of songs: play counts and the top five per genre."""
