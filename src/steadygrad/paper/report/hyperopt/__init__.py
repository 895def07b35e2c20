"""Claims M1 to M4 of the hyperparameter experiment, a file each, from its records alone."""
