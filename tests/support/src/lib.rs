//! Fakes that execute what they are told, and the suites they share with the real thing.
