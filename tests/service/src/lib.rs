//! A naive evaluator of Services, written apart from `service-core`, and random clusters.
