//! Custom resources and access rights in Kubernetes, and the manifests of both.
