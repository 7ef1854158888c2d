//! Programs to measure the optimizer on.
