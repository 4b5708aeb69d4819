//! The cloud in our words, and EC2 behind it.
