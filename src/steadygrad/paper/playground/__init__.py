"""`steadygrad playground`: a memory that retrieves, gradients as ρ(J) moves, and the diagnosis of updates."""
