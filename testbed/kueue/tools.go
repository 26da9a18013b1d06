//go:build tools

// Package kueue pins Kueue's own measurement of its scheduler, so that the test
// bed builds it by name and `go mod tidy` keeps what it needs.
package kueue

import (
	_ "sigs.k8s.io/kueue/test/performance/scheduler/minimalkueue"
	_ "sigs.k8s.io/kueue/test/performance/scheduler/runner"
)
