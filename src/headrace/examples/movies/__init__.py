"""The running average of ratings, with titles."""
