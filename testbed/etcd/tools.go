//go:build tools

// Package etcd pins etcd and its two tools, apart from Kubernetes because both
// choose their own versions of the modules they share.
package etcd

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
