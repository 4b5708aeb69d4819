//! Network namespaces that behave like a VPC.
