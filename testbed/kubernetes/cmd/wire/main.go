// Wire writes the golden files of crates/builtin: what Kubernetes' own code makes of objects.
//
//	go run ./cmd/wire CRATE
//
// wire.json.gz holds objects in the wire format next to their JSON: hand-made ones for what is
// special, and one filled with random values for every kind. read.json.gz holds JSON texts next to
// what the typed decoder makes of them, convert.json.gz objects that two versions show differently.
// quantity/golden.txt holds amounts.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/randfill"
)

var (
	wire   = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	text   = serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, serializer.SerializerOptions{})
	strict = serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, serializer.SerializerOptions{Strict: true})
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: wire CRATE")
	}
	must(apiextensions.AddToScheme(scheme.Scheme))
	must(apiregistration.AddToScheme(scheme.Scheme))
	golden := filepath.Join(os.Args[1], "tests", "it", "golden")
	must(os.MkdirAll(golden, 0o755))
	write(filepath.Join(golden, "wire.json.gz"), map[string]any{"special": specials(), "every": every()})
	write(filepath.Join(golden, "read.json.gz"), reads())
	write(filepath.Join(golden, "convert.json.gz"), views(filler()))
	must(os.WriteFile(filepath.Join(os.Args[1], "src", "quantity", "golden.txt"), []byte(quantities()), 0o644))
}

// pair is one object in both forms.
type pair struct {
	Wire []byte          `json:"wire"`
	JSON json.RawMessage `json:"json"`
}

func encode(object runtime.Object) pair {
	var packed bytes.Buffer
	must(wire.Encode(object, &packed))
	// What is not on the wire cannot come back: an empty list becomes none.
	back, _, err := wire.Decode(packed.Bytes(), nil, nil)
	must(err)
	back.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	var plain bytes.Buffer
	if revision, ok := back.(*apps.ControllerRevision); ok && bytes.HasPrefix(revision.Data.Raw, []byte("k8s\x00")) {
		inner, kind, err := wire.Decode(revision.Data.Raw, nil, nil)
		must(err)
		inner.GetObjectKind().SetGroupVersionKind(*kind)
		must(text.Encode(inner, &plain))
		revision.Data.Raw = bytes.Clone(plain.Bytes())
		plain.Reset()
	}
	must(text.Encode(back, &plain))
	return pair{packed.Bytes(), json.RawMessage(bytes.TrimSpace(plain.Bytes()))}
}

func typed(object runtime.Object) runtime.Object {
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	must(err)
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	return object
}

func ptr[T any](value T) *T { return &value }

func specials() map[string]pair {
	at := metav1.NewTime(time.Unix(1700000000, 0))
	meta := metav1.ObjectMeta{Name: "a", Namespace: "n", CreationTimestamp: at, Labels: map[string]string{"z": "1", "a": ""}}
	inner := encode(typed(&core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "inner"}, Data: map[string]string{"k": "v"}}))
	objects := map[string]runtime.Object{
		"namespace": &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		"deployment without pods": &apps.Deployment{ObjectMeta: meta, Spec: apps.DeploymentSpec{
			Replicas: ptr(int32(0)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Strategy: apps.DeploymentStrategy{RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: ptr(intstr.FromString("25%")), MaxUnavailable: ptr(intstr.FromInt32(0))}},
			Template: core.PodTemplateSpec{Spec: core.PodSpec{Containers: []core.Container{{Name: "c", Image: "i"}}}},
		}},
		"secret":                     &core.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": {0, 255, 10}, "e": {}}, Type: "Opaque", Immutable: ptr(false)},
		"role":                       &rbac.Role{ObjectMeta: meta, Rules: []rbac.PolicyRule{{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}}}},
		"role without rules":         &rbac.Role{ObjectMeta: meta},
		"self subject access review": &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{Verb: "get", Resource: "pods"}}},
		"subject access review":      &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: "u", Extra: map[string]authorization.ExtraValue{"k": {"a", "b"}, "e": {}}}},
		"token request":              &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: []string{"a"}, ExpirationSeconds: ptr(int64(600)), BoundObjectRef: &authentication.BoundObjectReference{Kind: "Pod", Name: "p"}}},
		"autoscaler v1":              &autoscaling.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscaling.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscaling.CrossVersionObjectReference{Kind: "Deployment", Name: "d"}}},
		"eviction":                   &policy.Eviction{ObjectMeta: meta, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}},
		"delete options":             &metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0)), PropagationPolicy: ptr(metav1.DeletePropagationForeground), Preconditions: &metav1.Preconditions{UID: nil, ResourceVersion: ptr("")}, DryRun: []string{"All"}},
		"scale":                      &autoscaling.Scale{ObjectMeta: meta, Spec: autoscaling.ScaleSpec{Replicas: 0}, Status: autoscaling.ScaleStatus{Replicas: 2, Selector: "a=b"}},
		"binding":                    &core.Binding{ObjectMeta: meta, Target: core.ObjectReference{Kind: "Node", Name: "n1"}},
		"event":                      &core.Event{ObjectMeta: meta, Reason: "r", FirstTimestamp: at, EventTime: metav1.NewMicroTime(time.Unix(1700000000, 123456789)), Count: 2, Series: &core.EventSeries{Count: 1}},
		"lease":                      &coordination.Lease{ObjectMeta: meta, Spec: coordination.LeaseSpec{HolderIdentity: ptr(""), RenewTime: &metav1.MicroTime{Time: time.Unix(-5, 999999000)}, LeaseTransitions: ptr(int32(-1))}},
		"revision with json":         &apps.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{Raw: []byte(`{"z":1,"a":[1.5,null]}`)}, Revision: -3},
		"revision with an envelope":  &apps.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{Raw: inner.Wire}, Revision: 1 << 60},
		"device class": &resourceapi.DeviceClass{ObjectMeta: meta, Spec: resourceapi.DeviceClassSpec{Config: []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: "d", Parameters: runtime.RawExtension{Raw: []byte(`{"kind":"x"}`)}}}}}}},
		"pod": &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", Time: &at, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:a":{}}`)}}},
			DeletionGracePeriodSeconds: ptr(int64(0)), OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: ptr(false)}}},
			Spec: core.PodSpec{
				Volumes: []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)}}},
					{Name: "w", VolumeSource: core.VolumeSource{Secret: &core.SecretVolumeSource{SecretName: "s", DefaultMode: ptr(int32(0))}}}},
				Containers: []core.Container{{Name: "c", Resources: core.ResourceRequirements{Requests: core.ResourceList{"cpu": resource.MustParse("0.1"), "memory": resource.MustParse("1Gi")}},
					LivenessProbe: &core.Probe{ProbeHandler: core.ProbeHandler{HTTPGet: &core.HTTPGetAction{Port: intstr.FromString("http")}}, PeriodSeconds: 3}}},
				EphemeralContainers:           []core.EphemeralContainer{{EphemeralContainerCommon: core.EphemeralContainerCommon{Name: "e"}, TargetContainerName: "c"}},
				AutomountServiceAccountToken:  ptr(false),
				TerminationGracePeriodSeconds: ptr(int64(0)), SecurityContext: &core.PodSecurityContext{},
				Tolerations: []core.Toleration{{}}},
			Status: core.PodStatus{StartTime: &at, Conditions: []core.PodCondition{{Type: "Ready", Status: "True"}}}},
		"definition": &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ws.ex.io"}, Spec: apiextensions.CustomResourceDefinitionSpec{Group: "ex.io", Scope: "Namespaced",
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "ws", Kind: "W"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
				Type: "object", Maximum: ptr(1.5), Minimum: ptr(2.0), MaxLength: ptr(int64(0)), Default: &apiextensions.JSON{Raw: []byte(`{"a":null}`)}, Enum: []apiextensions.JSON{{Raw: []byte(`"x"`)}, {Raw: []byte(`1`)}},
				Properties: map[string]apiextensions.JSONSchemaProps{
					"b": {AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{Allows: true}},
					"s": {AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensions.JSONSchemaProps{Type: "string"}}},
					"n": {AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{}},
					"i": {Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "string"}}, XListMapKeys: []string{"k"}, XPreserveUnknownFields: ptr(true)},
					"l": {Items: &apiextensions.JSONSchemaPropsOrArray{JSONSchemas: []apiextensions.JSONSchemaProps{{Type: "string"}, {}}}},
					"d": {Dependencies: apiextensions.JSONSchemaDependencies{"x": {Property: []string{"y"}}, "z": {Schema: &apiextensions.JSONSchemaProps{}}}},
				}}}}}}},
	}
	pairs := map[string]pair{}
	for name, object := range objects {
		pairs[name] = encode(typed(object))
	}
	return pairs
}

// filler fills objects with values that survive a round trip, always the same ones.
func filler() *randfill.Filler {
	random := rand.New(rand.NewSource(1))
	count := 0
	word := func() string { count++; return fmt.Sprintf("w%d", count%97) }
	return randfill.NewWithSeed(1).NilChance(0.5).NumElements(1, 2).MaxDepth(14).Funcs(
		func(s *string, c randfill.Continue) { *s = word() },
		func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(random.Int63n(1<<33), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) {
			t.Time = time.Unix(random.Int63n(1<<33), random.Int63n(1e6)*1000)
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(random.Int63n(1<<40), []resource.Format{resource.DecimalSI, resource.BinarySI, resource.DecimalExponent}[random.Intn(3)])
		},
		func(i *intstr.IntOrString, c randfill.Continue) {
			*i = []intstr.IntOrString{intstr.FromInt32(random.Int31()), intstr.FromString(word())}[random.Intn(2)]
		},
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(`{"b":{"x":[]},"a":1}`) },
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(`{"f:x":{".":{}}}`) },
		func(j *apiextensions.JSON, c randfill.Continue) {
			j.Raw = []byte([]string{`1`, `"a"`, `{"b":2}`}[random.Intn(3)])
		},
		func(j *apiextensions.JSONSchemaPropsOrBool, c randfill.Continue) { j.Allows = random.Intn(2) == 1 },
		func(j *apiextensions.JSONSchemaPropsOrArray, c randfill.Continue) {
			j.JSONSchemas = []apiextensions.JSONSchemaProps{{Type: word()}}
		},
		func(j *apiextensions.JSONSchemaPropsOrStringArray, c randfill.Continue) {
			j.Property = []string{word()}
		},
		func(f *float64, c randfill.Continue) { *f = float64(random.Intn(1000)) / 8 },
		func(b *[]byte, c randfill.Continue) { *b = []byte(word()) },
	)
}

// every fills one object of every kind.
func every() []pair {
	filler := filler()
	var kinds []schema.GroupVersionKind
	for kind, t := range scheme.Scheme.AllKnownTypes() {
		listed := strings.HasSuffix(kind.Kind, "List") || strings.HasSuffix(kind.Kind, "Options") || strings.HasPrefix(kind.Kind, "API") && kind.Kind != "APIService"
		if (kind.Version == "v1" || kind.Version == "v2") && !listed && kind.Kind != "WatchEvent" && kind.Group != "imagepolicy.k8s.io" && kind.Group != "apidiscovery.k8s.io" && t.Name() == kind.Kind && kind.Kind != "Status" {
			kinds = append(kinds, kind)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })
	var pairs []pair
	for _, kind := range kinds {
		object, err := scheme.Scheme.New(kind)
		must(err)
		filler.Fill(object)
		object.GetObjectKind().SetGroupVersionKind(kind)
		pairs = append(pairs, encode(object))
	}
	return pairs
}

// outcome is what the decoder makes of a text.
type outcome struct {
	Kind  string          `json:"kind"`
	Text  string          `json:"text"`
	JSON  json.RawMessage `json:"json,omitempty"`
	Error string          `json:"error,omitempty"`
	// Strict is the error of a strict reading, which lists unknown fields.
	Strict string `json:"strict,omitempty"`
}

func reads() []outcome {
	var outcomes []outcome
	for _, row := range texts {
		kind, body, _ := strings.Cut(row, " ")
		at := strings.LastIndex(kind, "/")
		gvk := schema.FromAPIVersionAndKind(kind[:at], kind[at+1:])
		made := outcome{Kind: kind, Text: body}
		object, _, err := text.Decode([]byte(body), &gvk, nil)
		if err != nil {
			made.Error = err.Error()
		} else {
			if _, _, err := strict.Decode([]byte(body), &gvk, nil); err != nil {
				made.Strict = err.Error()
			}
			if gvk.Group != "apiextensions.k8s.io" {
				var packed bytes.Buffer
				must(wire.Encode(object, &packed))
				back, _, err := wire.Decode(packed.Bytes(), nil, nil)
				must(err)
				kept := object.GetObjectKind().GroupVersionKind()
				object = back
				object.GetObjectKind().SetGroupVersionKind(kept)
			}
			var plain bytes.Buffer
			must(text.Encode(object, &plain))
			made.JSON = json.RawMessage(bytes.TrimSpace(plain.Bytes()))
		}
		outcomes = append(outcomes, made)
	}
	return outcomes
}

func quantities() string {
	var out strings.Builder
	out.WriteString("# Generated by testbed/kubernetes/cmd/wire: an amount, a tab, what is written for it.\n")
	suffixes := []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e3", "E-3", "e+2", "K", "mi", "e", "x", "Mib", "e1.5"}
	numbers := []string{"0", "1", "+1", "-1", "007", "8", "12", "100", "1000", "1024", "1536", "2048", "999999", ".5", "0.5", "1.", "1.5", "1.500", "1.000", "-0.25",
		"0.0000000001", "1.23456789012345", "123456789012345678", "1234567890123456789", "9223372036854775807", "9223372036854775808", "99999999999999999999999999", ".", "-", "+.5", "00", "0.1", "0.001", "-2048", "-1.5"}
	for _, number := range numbers {
		for _, suffix := range suffixes {
			var quantity resource.Quantity
			body := number + suffix
			if err := quantity.UnmarshalJSON([]byte(`"` + body + `"`)); err != nil {
				fmt.Fprintf(&out, "%s\t!%s\n", body, err)
				continue
			}
			written, err := quantity.MarshalJSON()
			must(err)
			fmt.Fprintf(&out, "%s\t%s\n", body, written[1:len(written)-1])
		}
	}
	return out.String()
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
