"""Claims H1 to H4 of the Hopfield experiment, a file each, from its records alone."""
