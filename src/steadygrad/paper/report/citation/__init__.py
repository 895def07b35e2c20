"""Claims G1 to G3 of the citation experiment, a file each, from its records alone."""
