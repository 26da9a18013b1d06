// Policy writes the data file of crates/rbac: the roles and bindings every cluster starts with.
//
//	go run ./cmd/policy CRATE
//
// It asks the package the API server itself asks, with the features of the pinned release as they
// are by default, so no server is needed. Lists stand in the order in which the server makes them;
// namespaces, which Go keeps without an order, by name.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"sort"

	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

type policy struct {
	ClusterRoles        []rbac.ClusterRole        `json:"clusterRoles"`
	ClusterRoleBindings []rbac.ClusterRoleBinding `json:"clusterRoleBindings"`
	Roles               []rbac.Role               `json:"roles"`
	RoleBindings        []rbac.RoleBinding        `json:"roleBindings"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: policy CRATE")
	}
	all := policy{
		ClusterRoles:        append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...),
		ClusterRoleBindings: append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...),
		Roles:               flat(bootstrappolicy.NamespaceRoles()),
		RoleBindings:        flat(bootstrappolicy.NamespaceRoleBindings()),
	}
	for i := range all.ClusterRoles {
		name(&all.ClusterRoles[i].TypeMeta, "ClusterRole")
	}
	for i := range all.ClusterRoleBindings {
		name(&all.ClusterRoleBindings[i].TypeMeta, "ClusterRoleBinding")
	}
	for i := range all.Roles {
		name(&all.Roles[i].TypeMeta, "Role")
	}
	for i := range all.RoleBindings {
		name(&all.RoleBindings[i].TypeMeta, "RoleBinding")
	}
	data, err := json.MarshalIndent(all, "", " ")
	must(err)
	must(os.WriteFile(filepath.Join(os.Args[1], "data", "policy.json"), append(data, '\n'), 0o644))
}

// name says of what kind an object is, which the package leaves out.
func name(meta *metav1.TypeMeta, kind string) {
	meta.APIVersion, meta.Kind = rbac.SchemeGroupVersion.String(), kind
}

// flat puts the objects of all namespaces in one list.
func flat[T any](byNamespace map[string][]T) []T {
	var namespaces []string
	for namespace := range byNamespace {
		namespaces = append(namespaces, namespace)
	}
	sort.Strings(namespaces)
	var all []T
	for _, namespace := range namespaces {
		all = append(all, byNamespace[namespace]...)
	}
	return all
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
