"""P1 to P4 and A1 as measured on small random maps, and the data sets."""
