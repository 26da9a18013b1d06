//go:build tools

// Package mcad pins the controller whose users Gantry's queue takes over, so
// that the test bed builds it by name and `go mod tidy` keeps what it needs.
package mcad

import (
	_ "github.com/project-codeflare/multi-cluster-app-dispatcher/cmd/kar-controllers"
)
