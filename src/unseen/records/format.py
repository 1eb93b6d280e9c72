"""The version of everything that is written to disk."""

FORMAT = 1
