package main

import (
	"bytes"
	"encoding/json"

	autoscaling "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	"sigs.k8s.io/randfill"
)

// view is one object as two versions show it: To is what becomes of From.
type view struct {
	From json.RawMessage `json:"from"`
	To   json.RawMessage `json:"to"`
}

// handmade are objects that no random filling makes.
var handmade = []string{
	`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"a"},"spec":{"scaleTargetRef":{"kind":"D","name":"d"},"maxReplicas":3}}`,
	`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"nonsense","autoscaling.alpha.kubernetes.io/behavior":"{}","x":"y"}},"spec":{"targetCPUUtilizationPercentage":0}}`,
	`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":5}]"}}}`,
	`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"External\",\"external\":{\"metricName\":\"m\",\"targetValue\":\"5\"}},{\"type\":\"Resource\",\"resource\":{\"name\":\"cpu\",\"targetAverageValue\":\"1\"}}]"}},"spec":{"targetCPUUtilizationPercentage":50},"status":{"currentCPUUtilizationPercentage":7,"currentReplicas":1,"desiredReplicas":2}}`,
	`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/behavior":"{\"scaleUp\":{\"policies\":[{\"type\":\"Pods\",\"value\":4,\"PeriodSeconds\":15}]}}","autoscaling.alpha.kubernetes.io/conditions":"[{\"type\":\"A\",\"status\":\"True\",\"lastTransitionTime\":null}]","autoscaling.alpha.kubernetes.io/current-metrics":"[]"}},"spec":{"targetCPUUtilizationPercentage":50},"status":{"currentCPUUtilizationPercentage":7}}`,
	`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"old","k":"v"}},"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":60}}},{"type":"External","external":{"metric":{"name":"<&>","selector":{"matchLabels":{"b":"1","a":"2"}}},"target":{"type":"AverageValue","averageValue":"1.5"}}}],"behavior":{}},"status":{"conditions":[{"type":"A","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z","message":"a\"b"}]}}`,
	`{"kind":"Event","apiVersion":"v1","metadata":{"name":"e"},"involvedObject":{"kind":"Pod"},"reason":"r","message":"m","source":{"component":"c"},"count":3,"type":"Normal","reportingComponent":"rc"}`,
	`{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"e"},"eventTime":"2020-01-01T00:00:00.000001Z","note":"n","regarding":{"name":"x"},"series":{"count":2,"lastObservedTime":"2020-01-01T00:00:00.000001Z"}}`,
}

func views(filler *randfill.Filler) []view {
	var all []view
	for _, body := range handmade {
		object, _, err := text.Decode([]byte(body), nil, nil)
		must(err)
		all = append(all, convert(object))
	}
	for range 12 {
		autoscaler, old := &autoscalingv2.HorizontalPodAutoscaler{}, &autoscaling.HorizontalPodAutoscaler{}
		event, newer := &core.Event{}, &events.Event{}
		for _, object := range []runtime.Object{autoscaler, old, event, newer} {
			filler.Fill(object)
			all = append(all, convert(typed(object)))
		}
	}
	return all
}

func convert(object runtime.Object) view {
	kind := object.GetObjectKind().GroupVersionKind()
	other := map[schema.GroupVersion]schema.GroupVersion{
		autoscaling.SchemeGroupVersion:   autoscalingv2.SchemeGroupVersion,
		autoscalingv2.SchemeGroupVersion: autoscaling.SchemeGroupVersion,
		core.SchemeGroupVersion:          events.SchemeGroupVersion,
		events.SchemeGroupVersion:        core.SchemeGroupVersion,
	}[kind.GroupVersion()]
	from := plain(object)
	// Events have one internal form, which is in the core group.
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(object.DeepCopyObject(), runtime.InternalGroupVersioner)
	must(err)
	made, err := legacyscheme.Scheme.UnsafeConvertToVersion(internal, other)
	must(err)
	made.GetObjectKind().SetGroupVersionKind(other.WithKind(kind.Kind))
	return view{from, encode(made).JSON}
}

func plain(object runtime.Object) json.RawMessage {
	var out bytes.Buffer
	must(text.Encode(object, &out))
	return json.RawMessage(bytes.TrimSpace(out.Bytes()))
}
