//! Tests against a real kernel in namespaces of their own.
