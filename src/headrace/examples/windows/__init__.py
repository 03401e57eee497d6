"""Every kind of window, with the figures of the slides, and the tickets of a day."""
