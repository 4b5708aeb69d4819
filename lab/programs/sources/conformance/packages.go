//go:build packages

package main

// The tests of Kubernetes are built from this package. The import keeps its dependencies in go.mod.
import _ "k8s.io/kubernetes/test/e2e"
