//! Kubernetes in the pool's words: what it tells, and what it is told.
