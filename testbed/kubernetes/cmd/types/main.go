// Types writes the data files of crates/builtin: what Kubernetes' own kinds are made of.
//
//	go run ./cmd/types KUBECONFIG CRATE
//
// KUBECONFIG leads to an API server of the pinned release with default flags; custom kinds that it
// may have are left out. Go's declarations say what OpenAPI cannot: the order of fields, which are
// pointers, what is left out when empty, and the numbers of the wire format. OpenAPI says what only
// comments say in Go: list types, keys, defaults, closed sets.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/util"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: types KUBECONFIG CRATE")
	}
	must(apiextensions.AddToScheme(scheme.Scheme))
	must(apiregistration.AddToScheme(scheme.Scheme))
	server := connect(os.Args[1])
	data := filepath.Join(os.Args[2], "data")
	golden := filepath.Join(os.Args[2], "tests", "it", "golden")
	must(os.RemoveAll(filepath.Join(data, "openapi")))
	must(os.MkdirAll(filepath.Join(data, "openapi"), 0o755))
	must(os.MkdirAll(golden, 0o755))

	// What a server says of itself, both as the source and, word for word, as the judge of what the
	// crate makes of it.
	aggregated, legacy := map[string]any{}, map[string]any{}
	for _, root := range []string{"/api", "/apis"} {
		aggregated[root] = builtin(server.get(root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"))
		legacy[root] = builtin(server.get(root, "application/json"))
	}
	served := groupVersions(aggregated)
	hashes := map[string]any{}
	paths := []string{"api", "apis"}
	for _, gv := range served {
		path := "/apis/" + gv.String()
		if gv.Group == "" {
			path = "/api/" + gv.Version
		} else {
			paths = append(paths, "apis/"+gv.Group)
			legacy["/apis/"+gv.Group] = server.get("/apis/"+gv.Group, "application/json")
		}
		paths = append(paths, path[1:])
		legacy[path] = server.get(path, "application/json")
		for _, resource := range legacy[path].(map[string]any)["resources"].([]any) {
			resource := resource.(map[string]any)
			if hash, ok := resource["storageVersionHash"]; ok {
				hashes[path[1:]+"/"+resource["name"].(string)] = hash
			}
		}
	}
	aggregated["hashes"] = hashes
	write(filepath.Join(data, "discovery.json.gz"), aggregated)
	write(filepath.Join(golden, "legacy.json.gz"), legacy)

	schemas := map[string]any{}
	others := []string{".well-known/openid-configuration", "openid/v1/jwks", "version"}
	for _, path := range append(paths, others...) {
		doc := server.get("/openapi/v3/"+path, "application/json")
		write(filepath.Join(data, "openapi", strings.ReplaceAll(path, "/", "__")+".json.gz"), doc)
		if components, ok := doc["components"].(map[string]any); ok {
			for name, schema := range components["schemas"].(map[string]any) {
				schemas[name] = schema
			}
		}
	}
	write(filepath.Join(data, "types.json.gz"), collect(served, schemas))
}

type server struct {
	http *http.Client
	host string
}

func connect(kubeconfig string) server {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(err)
	client, err := rest.HTTPClientFor(config)
	must(err)
	return server{client, config.Host}
}

func (s server) get(path, accept string) map[string]any {
	request, err := http.NewRequest("GET", s.host+path, nil)
	must(err)
	request.Header.Set("Accept", accept)
	answer, err := s.http.Do(request)
	must(err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		log.Fatalf("%s: %s", path, answer.Status)
	}
	var doc map[string]any
	decoder := json.NewDecoder(answer.Body)
	decoder.UseNumber()
	must(decoder.Decode(&doc))
	return doc
}

// builtin drops the groups that custom kinds made.
func builtin(list map[string]any) map[string]any {
	for _, key := range []string{"items", "groups"} {
		groups, ok := list[key].([]any)
		if !ok {
			continue
		}
		var kept []any
		for _, group := range groups {
			group := group.(map[string]any)
			name, _ := group["name"].(string)
			if meta, ok := group["metadata"].(map[string]any); ok {
				name, _ = meta["name"].(string)
			}
			if scheme.Scheme.IsGroupRegistered(name) {
				kept = append(kept, group)
			}
		}
		list[key] = kept
	}
	return list
}

// groupVersions lists what the server serves, in its own order.
func groupVersions(discovery map[string]any) []schema.GroupVersion {
	var served []schema.GroupVersion
	for _, root := range []string{"/api", "/apis"} {
		for _, item := range discovery[root].(map[string]any)["items"].([]any) {
			group, _ := item.(map[string]any)["metadata"].(map[string]any)["name"].(string)
			for _, version := range item.(map[string]any)["versions"].([]any) {
				name := version.(map[string]any)["version"].(string)
				served = append(served, schema.GroupVersion{Group: group, Version: name})
			}
		}
	}
	return served
}

// Type is one Go struct.
type Type struct {
	// Name is what OpenAPI calls it.
	Name string `json:"n"`
	// Go is what Go calls it, as in v1.PodSpec.
	Go     string   `json:"g"`
	Atomic bool     `json:"a,omitempty"`
	Fields []*Field `json:"f"`
}

// Field is one field of a struct.
type Field struct {
	JSON string `json:"j,omitempty"`
	// Value is what it holds, in the small language of collector.expr.
	Value     string `json:"t"`
	Inline    bool   `json:"i,omitempty"`
	Pointer   bool   `json:"p,omitempty"`
	OmitEmpty bool   `json:"o,omitempty"`
	OmitZero  bool   `json:"z,omitempty"`
	// Number is the place on the wire; 0 if it is not sent.
	Number   int    `json:"w,omitempty"`
	Strategy string `json:"ps,omitempty"`
	MergeKey string `json:"pk,omitempty"`
	Required bool   `json:"r,omitempty"`
	ListType string `json:"lt,omitempty"`
	ListKeys any    `json:"lk,omitempty"`
	Atomic   bool   `json:"a,omitempty"`
	Enum     any    `json:"e,omitempty"`
	Default  any    `json:"d,omitempty"`
}

type kind struct {
	Group   string `json:"g,omitempty"`
	Version string `json:"v"`
	Kind    string `json:"k"`
	Type    int    `json:"t"`
}

type tables struct {
	Types []*Type `json:"types"`
	Kinds []kind  `json:"kinds"`
}

type collector struct {
	tables
	schemas map[string]any
	places  map[reflect.Type]int
}

func collect(served []schema.GroupVersion, schemas map[string]any) tables {
	c := &collector{schemas: schemas, places: map[reflect.Type]int{}}
	for _, gv := range served {
		known := scheme.Scheme.KnownTypes(gv)
		var names []string
		for name := range known {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			c.add(gv, name, known[name])
		}
	}
	meta := metav1.SchemeGroupVersion
	for _, object := range []any{
		metav1.CreateOptions{}, metav1.DeleteOptions{}, metav1.GetOptions{}, metav1.ListOptions{},
		metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{}, metav1.PatchOptions{},
		metav1.Status{}, metav1.UpdateOptions{},
	} {
		c.add(meta, reflect.TypeOf(object).Name(), reflect.TypeOf(object))
	}
	return c.tables
}

func (c *collector) add(gv schema.GroupVersion, name string, t reflect.Type) {
	// Discovery documents are kinds too, but no one sends them; they hold what no object holds.
	if strings.HasPrefix(name, "API") && t.PkgPath() == reflect.TypeOf(metav1.Status{}).PkgPath() {
		return
	}
	c.Kinds = append(c.Kinds, kind{gv.Group, gv.Version, name, c.place(t)})
}

var special = map[reflect.Type]string{
	reflect.TypeOf(metav1.Time{}):                                "T",
	reflect.TypeOf(metav1.MicroTime{}):                           "U",
	reflect.TypeOf(metav1.Duration{}):                            "D",
	reflect.TypeOf(resource.Quantity{}):                          "Q",
	reflect.TypeOf(intstr.IntOrString{}):                         "I",
	reflect.TypeOf(runtime.RawExtension{}):                       "R",
	reflect.TypeOf(metav1.FieldsV1{}):                            "F",
	reflect.TypeOf(apiextensions.JSON{}):                         "J",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrBool{}):        "B",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrArray{}):       "A",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrStringArray{}): "S",
}

var message = reflect.TypeOf((*interface{ Marshal() ([]byte, error) })(nil)).Elem()

// expr writes a type: one letter for a scalar, #n for a struct, [] and {} before the type of
// elements and values, * before a pointer, ! before a list that is a message of its own on the
// wire, and "@name " before anything whose Go name says more than its make.
func (c *collector) expr(t reflect.Type) string {
	if letter, ok := special[t]; ok {
		return letter
	}
	named := ""
	if t.PkgPath() != "" && t.Kind() != reflect.Struct {
		named = "@" + t.String() + " "
	}
	switch t.Kind() {
	case reflect.String:
		return named + "s"
	case reflect.Int32:
		return named + "i"
	case reflect.Int64:
		return named + "l"
	case reflect.Float64:
		return named + "d"
	case reflect.Bool:
		return named + "b"
	case reflect.Pointer:
		return named + "*" + c.expr(t.Elem())
	case reflect.Struct:
		// Types that refer to it in Go's own words are told apart by place.
		return "#" + strconv.Itoa(c.place(t))
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return named + "y"
		}
		if reflect.PointerTo(t).Implements(message) {
			named += "!"
		}
		return named + "[]" + c.expr(t.Elem())
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			log.Fatalf("%v: keys are not text", t)
		}
		if t.Key().PkgPath() != "" && named == "" {
			named = "@" + t.String() + " "
		}
		return named + "{}" + c.expr(t.Elem())
	}
	log.Fatalf("%v: no letter for it", t)
	return ""
}

func (c *collector) place(t reflect.Type) int {
	if place, ok := c.places[t]; ok {
		return place
	}
	name := util.ToRESTFriendlyName(t.PkgPath() + "." + t.Name())
	made := &Type{Name: name, Go: t.String(), Fields: []*Field{}}
	c.Types = append(c.Types, made)
	place := len(c.Types) - 1
	c.places[t] = place

	spec, _ := c.schemas[name].(map[string]any)
	made.Atomic = spec["x-kubernetes-map-type"] == "atomic"
	required := map[string]bool{}
	if list, ok := spec["required"].([]any); ok {
		for _, field := range list {
			required[field.(string)] = true
		}
	}
	properties, _ := spec["properties"].(map[string]any)
	for i := range t.NumField() {
		field := c.field(t.Field(i))
		if field == nil {
			continue
		}
		field.Required = required[field.JSON]
		if property, ok := properties[field.JSON].(map[string]any); ok && !field.Inline {
			describe(field, property)
		} else if spec != nil && !field.Inline {
			log.Printf("%s.%s: not in OpenAPI", name, field.JSON)
		}
		made.Fields = append(made.Fields, field)
	}
	return place
}

func (c *collector) field(f reflect.StructField) *Field {
	words := strings.Split(f.Tag.Get("json"), ",")
	if !f.IsExported() || words[0] == "-" {
		return nil
	}
	made := &Field{JSON: words[0], Strategy: f.Tag.Get("patchStrategy"), MergeKey: f.Tag.Get("patchMergeKey")}
	for _, word := range words[1:] {
		switch word {
		case "omitempty":
			made.OmitEmpty = true
		case "omitzero":
			made.OmitZero = true
		case "inline":
		default:
			log.Fatalf("%s: unknown option %q", f.Name, word)
		}
	}
	// Go decides by the absence of a name, whatever the tag says.
	made.Inline = made.JSON == "" && f.Anonymous
	if made.JSON == "" && !made.Inline {
		made.JSON = f.Name
	}
	t := f.Type
	if t.Kind() == reflect.Pointer {
		made.Pointer = true
		t = t.Elem()
	}
	made.Value = c.expr(t)
	if tag := strings.Split(f.Tag.Get("protobuf"), ","); len(tag) > 1 {
		number, err := strconv.Atoi(tag[1])
		must(err)
		made.Number = number
	}
	return made
}

func describe(field *Field, property map[string]any) {
	field.ListType, _ = property["x-kubernetes-list-type"].(string)
	field.ListKeys = property["x-kubernetes-list-map-keys"]
	field.Atomic = property["x-kubernetes-map-type"] == "atomic"
	field.Enum = property["enum"]
	if items, ok := property["items"].(map[string]any); ok && items["enum"] != nil {
		field.Enum = items["enum"]
	}
	field.Default = property["default"]
}

// write leaves no time and no name in the file: the same input gives the same bytes.
func write(path string, value any) {
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	must(encoder.Encode(value))
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	must(err)
	_, err = zip.Write(bytes.TrimSpace(plain.Bytes()))
	must(err)
	must(zip.Close())
	must(os.WriteFile(path, packed.Bytes(), 0o644))
	fmt.Printf("%8d %8d %s\n", plain.Len(), packed.Len(), path)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
