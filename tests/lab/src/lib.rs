//! Tests of whole nodes: the production programs in a lab of their own.
