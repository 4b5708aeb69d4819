//! Environment to resolved settings: the only place where defaults live.
