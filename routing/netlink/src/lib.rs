//! Observes the kernel and carries out routing plans.
