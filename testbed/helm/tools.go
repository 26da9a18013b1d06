//go:build tools

// Package helm pins helm, apart from the programs of the test bed: it is a client under test, not
// part of a cluster.
package helm

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
