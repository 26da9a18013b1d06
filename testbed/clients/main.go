// Clients plays what controllers do all day against an API server that is killed under them:
// shared informers, server-side apply, patches, leader election, protobuf, bookmarks.
//
//	clients KUBECONFIG
//
// It prints a line for every part, "restart" when the server may be killed, and exits with 1 when
// at the end a cache is not what the store holds. The server must come back on the same port.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	namespace = "clients"
	objects   = 200
	patience  = 90 * time.Second
)

var widgets = schema.GroupVersionResource{Group: "clients.example", Version: "v1", Resource: "widgets"}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
	fmt.Println("ok all")
}

func run(kubeconfig string) error {
	ctx, stop := context.WithTimeout(context.Background(), 3*patience)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 500
	proto := rest.CopyConfig(config)
	proto.ContentType = "application/vnd.kubernetes.protobuf"
	proto.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	typed, err := kubernetes.NewForConfig(proto)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	spaces := typed.CoreV1().Namespaces()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := spaces.Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("namespace by protobuf: %w", err)
	}
	if err := define(ctx, dyn); err != nil {
		return fmt.Errorf("definition: %w", err)
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, kubernetes.Interface, dynamic.Interface) error
	}{
		{"protobuf", protobuf},
		{"server-side apply", apply},
		{"patches", patches},
		{"bookmarks", bookmarks},
		{"watch-list", watchList},
		{"leader election", elect},
		{"informers over a restart", follow},
	} {
		began := time.Now()
		if err := part.run(ctx, typed, dyn); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Printf("ok %s %.1fs\n", part.name, time.Since(began).Seconds())
	}
	return nil
}

// define creates a custom kind and waits until it is served.
func define(ctx context.Context, dyn dynamic.Interface) error {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	object := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": widgets.Resource + "." + widgets.Group},
		"spec": map[string]any{
			"group": widgets.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": object, "status": object}}},
			}},
		},
	}}
	if _, err := dyn.Resource(crds).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	return until(ctx, func() error {
		_, err := dyn.Resource(widgets).List(ctx, metav1.ListOptions{})
		return err
	})
}

// protobuf sends and receives a deployment in the binary form.
func protobuf(ctx context.Context, typed kubernetes.Interface, _ dynamic.Interface) error {
	labels := map[string]string{"app": "binary"}
	wanted := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "binary"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox"}}},
			},
		},
	}
	made, err := typed.AppsV1().Deployments(namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if made.UID == "" || made.Spec.Replicas == nil || *made.Spec.Replicas != 1 {
		return fmt.Errorf("not defaulted: %v", made)
	}
	read, err := typed.AppsV1().Deployments(namespace).Get(ctx, "binary", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(made, read) {
		return fmt.Errorf("read %v, made %v", read, made)
	}
	read.Spec.Template.Spec.Containers[0].Image = "busybox:2"
	if _, err = typed.AppsV1().Deployments(namespace).Update(ctx, read, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err = typed.AppsV1().Deployments(namespace).Update(ctx, read, metav1.UpdateOptions{}); err == nil {
		return errors.New("an update of an old revision was accepted")
	}
	return nil
}

// apply lets two managers share an object and meet in one field.
func apply(ctx context.Context, typed kubernetes.Interface, _ dynamic.Interface) error {
	maps := typed.CoreV1().ConfigMaps(namespace)
	config := func(data map[string]string) *applycore.ConfigMapApplyConfiguration {
		return applycore.ConfigMap("applied", namespace).WithData(data)
	}
	if _, err := maps.Apply(ctx, config(map[string]string{"a": "1", "b": "1"}), metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		return err
	}
	if _, err := maps.Apply(ctx, config(map[string]string{"b": "2"}), metav1.ApplyOptions{FieldManager: "two"}); err == nil {
		return errors.New("no conflict")
	}
	if _, err := maps.Apply(ctx, config(map[string]string{"b": "2"}), metav1.ApplyOptions{FieldManager: "two", Force: true}); err != nil {
		return err
	}
	end, err := maps.Apply(ctx, config(map[string]string{"c": "1"}), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		return err
	}
	if wanted := map[string]string{"b": "2", "c": "1"}; !reflect.DeepEqual(end.Data, wanted) {
		return fmt.Errorf("got %v, not %v", end.Data, wanted)
	}
	mine, err := applycore.ExtractConfigMap(end, "one")
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(mine.Data, map[string]string{"c": "1"}) {
		return fmt.Errorf("owned by one: %v", mine.Data)
	}
	deployment := applyapps.Deployment("applied", namespace).WithSpec(applyapps.DeploymentSpec().
		WithReplicas(3).WithSelector(applymeta.LabelSelector().WithMatchLabels(map[string]string{"a": "b"})).
		WithTemplate(applycore.PodTemplateSpec().WithLabels(map[string]string{"a": "b"}).
			WithSpec(applycore.PodSpec().WithContainers(applycore.Container().WithName("c").WithImage("busybox")))))
	_, err = typed.AppsV1().Deployments(namespace).Apply(ctx, deployment, metav1.ApplyOptions{FieldManager: "one"})
	return err
}

// patches changes one object in three ways, and a custom one in two.
func patches(ctx context.Context, typed kubernetes.Interface, dyn dynamic.Interface) error {
	deployments := typed.AppsV1().Deployments(namespace)
	for kind, patch := range map[types.PatchType]string{
		types.StrategicMergePatchType: `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox"}]}}}}`,
		types.MergePatchType:          `{"metadata":{"annotations":{"merge":"yes"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/spec/replicas","value":7}]`,
	} {
		if _, err := deployments.Patch(ctx, "binary", kind, []byte(patch), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	end, err := deployments.Get(ctx, "binary", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(end.Spec.Template.Spec.Containers) != 2 || end.Annotations["merge"] != "yes" || *end.Spec.Replicas != 7 {
		return fmt.Errorf("patched to %v", end)
	}
	scale, err := deployments.GetScale(ctx, "binary", metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = 2
	if _, err := deployments.UpdateScale(ctx, "binary", scale, metav1.UpdateOptions{}); err != nil {
		return err
	}
	custom := dyn.Resource(widgets).Namespace(namespace)
	if _, err := custom.Create(ctx, widget("patched", 1), metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := custom.Patch(ctx, "patched", types.MergePatchType, []byte(`{"spec":{"n":2}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	got, err := custom.Patch(ctx, "patched", types.JSONPatchType, []byte(`[{"op":"replace","path":"/status","value":{"ok":true}}]`), metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	if n, _, _ := unstructured.NestedInt64(got.Object, "spec", "n"); n != 2 {
		return fmt.Errorf("patched to %v", got.Object)
	}
	return custom.Delete(ctx, "patched", metav1.DeleteOptions{})
}

// bookmarks watches from a list and wants a bookmark at or after the last change.
func bookmarks(ctx context.Context, typed kubernetes.Interface, _ dynamic.Interface) error {
	maps := typed.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	seconds := int64(5)
	watcher, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marked"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	added, marked := false, false
	for event := range watcher.ResultChan() {
		switch event.Type {
		case watch.Added:
			added = true
		case watch.Bookmark:
			marked = true
		}
	}
	// A server sends its last bookmark shortly before the end that was asked for.
	if !added || !marked {
		return fmt.Errorf("added: %t, bookmark: %t", added, marked)
	}
	return nil
}

// watchList asks for the whole state as a stream, which ends with a marked bookmark.
func watchList(ctx context.Context, typed kubernetes.Interface, _ dynamic.Interface) error {
	maps := typed.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	yes := true
	watcher, err := maps.Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	count := 0
	for {
		select {
		case <-time.After(patience):
			return fmt.Errorf("no end after %d objects", count)
		case event, open := <-watcher.ResultChan():
			if !open {
				return errors.New("the stream ended")
			}
			switch event.Type {
			case watch.Added:
				count++
			case watch.Bookmark:
				mark := event.Object.(*corev1.ConfigMap)
				if mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
					continue
				}
				if count != len(list.Items) {
					return fmt.Errorf("%d objects, not %d", count, len(list.Items))
				}
				return nil
			}
		}
	}
}

// elect lets two candidates compete, and the second take over when the first lets go.
func elect(ctx context.Context, typed kubernetes.Interface, _ dynamic.Interface) error {
	leading := make(chan string, 2)
	candidate := func(name string) (context.CancelFunc, error) {
		own, stop := context.WithCancel(ctx)
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "leader"},
				Client:     typed.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leading <- name },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			stop()
			return nil, err
		}
		go elector.Run(own)
		return stop, nil
	}
	first, err := candidate("one")
	if err != nil {
		return err
	}
	defer first()
	if err := expect(leading, "one"); err != nil {
		return err
	}
	second, err := candidate("two")
	if err != nil {
		return err
	}
	defer second()
	first()
	return expect(leading, "two")
}

func expect(leading <-chan string, name string) error {
	select {
	case got := <-leading:
		if got != name {
			return fmt.Errorf("%s leads, not %s", got, name)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s never led", name)
	}
}

// follow keeps caches of built-in and custom objects while a writer changes both and the server is
// killed and started again, then compares the caches with the store.
func follow(ctx context.Context, typed kubernetes.Interface, dyn dynamic.Interface) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(namespace))
	maps := factory.Core().V1().ConfigMaps().Informer()
	deployments := factory.Apps().V1().Deployments().Informer()
	customs := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, namespace, nil)
	things := customs.ForResource(widgets).Informer()
	all := []cache.SharedIndexInformer{maps, deployments, things}
	var deleted atomic.Int64
	for _, informer := range all {
		handler := cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { deleted.Add(1) }}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	customs.Start(ctx.Done())
	for _, informer := range all {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return errors.New("a cache never filled")
		}
	}
	for n := range objects {
		if n == objects/2 {
			fmt.Println("restart")
		}
		if err := write(ctx, typed, dyn, n); err != nil {
			return err
		}
	}
	return until(ctx, func() error {
		if deleted.Load() == 0 {
			return errors.New("no deletion was seen")
		}
		return compare(ctx, typed, dyn, maps, deployments, things)
	})
}

// write creates one of each, changes some and deletes some; each request is repeated until the
// server answers, as a request that got no answer may or may not have been carried out.
func write(ctx context.Context, typed kubernetes.Interface, dyn dynamic.Interface, n int) error {
	maps, custom := typed.CoreV1().ConfigMaps(namespace), dyn.Resource(widgets).Namespace(namespace)
	name := fmt.Sprintf("object-%03d", n)
	force := metav1.ApplyOptions{FieldManager: "writer", Force: true}
	if err := until(ctx, func() error {
		_, err := maps.Apply(ctx, applycore.ConfigMap(name, namespace).WithData(map[string]string{"n": name}), force)
		return err
	}); err != nil {
		return err
	}
	if err := until(ctx, func() error {
		_, err := custom.Apply(ctx, name, widget(name, int64(n)), force)
		return err
	}); err != nil {
		return err
	}
	if n%4 != 3 {
		return nil
	}
	old := fmt.Sprintf("object-%03d", n-2)
	return until(ctx, func() error {
		if err := ignoreMissing(maps.Delete(ctx, old, metav1.DeleteOptions{})); err != nil {
			return err
		}
		return ignoreMissing(custom.Delete(ctx, old, metav1.DeleteOptions{}))
	})
}

// compare says how a cache differs from the store.
func compare(ctx context.Context, typed kubernetes.Interface, dyn dynamic.Interface, maps, deployments, things cache.SharedIndexInformer) error {
	mapList, err := typed.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deploymentList, err := typed.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	thingList, err := dyn.Resource(widgets).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var wanted [3][]metav1.Object
	for n := range mapList.Items {
		wanted[0] = append(wanted[0], &mapList.Items[n])
	}
	for n := range deploymentList.Items {
		wanted[1] = append(wanted[1], &deploymentList.Items[n])
	}
	for n := range thingList.Items {
		wanted[2] = append(wanted[2], &thingList.Items[n])
	}
	for n, informer := range []cache.SharedIndexInformer{maps, deployments, things} {
		var cached []metav1.Object
		for _, object := range informer.GetStore().List() {
			cached = append(cached, object.(metav1.Object))
		}
		if got, want := versions(cached), versions(wanted[n]); len(want) == 0 || !reflect.DeepEqual(got, want) {
			return fmt.Errorf("cache %d holds %d objects, the store %d, and they differ", n, len(got), len(want))
		}
	}
	if len(wanted[2]) != objects-objects/4 {
		return fmt.Errorf("%d widgets are left", len(wanted[2]))
	}
	return nil
}

func versions(objects []metav1.Object) []string {
	var versions []string
	for _, object := range objects {
		versions = append(versions, fmt.Sprint(object.GetName(), object.GetUID(), object.GetResourceVersion()))
	}
	sort.Strings(versions)
	return versions
}

func widget(name string, n int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "clients.example/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     map[string]any{"n": n},
	}}
}

func ignoreMissing(err error) error {
	if status := (interface{ Status() metav1.Status })(nil); errors.As(err, &status) && status.Status().Code == 404 {
		return nil
	}
	return err
}

// until repeats what fails until it works, for a bounded time.
func until(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
