"""The parts of compare_collectives."""
