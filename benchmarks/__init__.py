"""Speed figures, each a ratio of two things measured alternately in one run."""
