//go:build tools

// Package kwok pins the simulator that plays kubelet for nodes that do not exist.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
