// Command allocator times the structured allocator of Kubernetes on the problems that
// `make bench-devices` gives to both allocators, and prints one line of JSON for each.
//
//	allocator CASE...        for instance: full/500x10 refuse/9 match/500 backtrack/8
//
// A case is a family and its size; see families below, and selectors.go for expressions. Objects are recreated for each case and
// never change. What is timed is what a scheduler does for one pod: an allocator for the state of
// the cluster, then a node at a time until one fits.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

const (
	driver = "gpu.example.com"
	class  = "gpu"
	// Time for one case, and for one allocation: the scheduler gives up after the latter.
	enough   = 2 * time.Second
	patience = 10 * time.Second
)

// problem is a cluster and what one pod asks of it.
type problem struct {
	nodes  []*v1.Node
	slices []*resourceapi.ResourceSlice
	held   sets.Set[structured.DeviceID]
	claims []*resourceapi.ResourceClaim
}

// families make a problem of a size.
var families = map[string]func(size []int) problem{
	// NODESxDEVICES: everything is free.
	"empty": func(size []int) problem {
		return problem{nodes: nodes(size[0]), slices: slices(size[0], size[1]), claims: one(1)}
	},
	// NODESxDEVICES: everything is held but one device on the last node.
	"full": func(size []int) problem {
		p := problem{nodes: nodes(size[0]), slices: slices(size[0], size[1]), claims: one(1)}
		p.held = sets.New[structured.DeviceID]()
		for n := range size[0] {
			for d := range size[1] {
				if n != size[0]-1 || d != size[1]-1 {
					p.held.Insert(structured.MakeDeviceID(driver, nodeName(n), deviceName(d)))
				}
			}
		}
		return p
	},
	// DEVICES: one request for one device more than there are.
	"refuse": func(size []int) problem {
		return problem{nodes: nodes(1), slices: slices(1, size[0]), claims: one(int64(size[0]) + 1)}
	},
	// DEVICES: one request more than there are devices, each for one.
	"refuse-each": func(size []int) problem {
		requests := make([]resourceapi.DeviceRequest, size[0]+1)
		for i := range requests {
			requests[i] = request(fmt.Sprintf("r%d", i), 1)
		}
		return problem{nodes: nodes(1), slices: slices(1, size[0]), claims: claim(requests)}
	},
	// NODES: ten devices at two roots on each, alternating; five requests for one device, all at
	// the same root.
	"match": func(size []int) problem {
		p := problem{nodes: nodes(size[0]), slices: slices(size[0], 10)}
		for _, slice := range p.slices {
			for i := range slice.Spec.Devices {
				slice.Spec.Devices[i].Attributes["root"] = text(fmt.Sprintf("root-%d", i%2))
			}
		}
		requests := make([]resourceapi.DeviceRequest, 5)
		for i := range requests {
			requests[i] = request(fmt.Sprintf("r%d", i), 1)
		}
		p.claims = claim(requests)
		p.claims[0].Spec.Devices.Constraints = []resourceapi.DeviceConstraint{
			{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(driver + "/root"))},
		}
		return p
	},
	// DEVICES: they share ten times (DEVICES-1) of memory; the first takes twenty of it, each of the
	// others ten; all but one are wanted.
	"backtrack": func(size []int) problem {
		p := problem{nodes: nodes(1), slices: slices(1, size[0]), claims: one(int64(size[0]) - 1)}
		spec := &p.slices[0].Spec
		spec.SharedCounters = []resourceapi.CounterSet{{
			Name:     "memory",
			Counters: counter(10 * (size[0] - 1)),
		}}
		for i := range spec.Devices {
			takes := 10
			if i == 0 {
				takes = 20
			}
			spec.Devices[i].ConsumesCounters = []resourceapi.DeviceCounterConsumption{
				{CounterSet: "memory", Counters: counter(takes)},
			}
		}
		return p
	},
}

func counter(gigabytes int) map[string]resourceapi.Counter {
	return map[string]resourceapi.Counter{
		"memory": {Value: *resource.NewQuantity(int64(gigabytes)<<30, resource.BinarySI)},
	}
}

func nodeName(n int) string   { return fmt.Sprintf("node-%04d", n) }
func deviceName(d int) string { return fmt.Sprintf("gpu-%04d", d) }

func nodes(count int) []*v1.Node {
	all := make([]*v1.Node, count)
	for n := range all {
		all[n] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(n)}}
	}
	return all
}

func text(value string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &value}
}

func slices(nodes, devices int) []*resourceapi.ResourceSlice {
	all := make([]*resourceapi.ResourceSlice, nodes)
	for n := range all {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: nodeName(n)}}
		slice.Spec = resourceapi.ResourceSliceSpec{
			Driver:   driver,
			Pool:     resourceapi.ResourcePool{Name: nodeName(n), Generation: 1, ResourceSliceCount: 1},
			NodeName: ptr.To(nodeName(n)),
		}
		for d := range devices {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
				Name: deviceName(d),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"model":         text("A100"),
					"family":        text("GPU"),
					"driverVersion": {VersionValue: ptr.To("1.2.3")},
					"numa":          {IntValue: ptr.To(int64(d))},
				},
				Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
					"memory": {Value: resource.MustParse("1Gi")},
				},
			})
		}
		all[n] = slice
	}
	return all
}

func request(name string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class,
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           count,
	}}
}

func claim(requests []resourceapi.DeviceRequest) []*resourceapi.ResourceClaim {
	it := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", UID: "c"}}
	it.Spec.Devices.Requests = requests
	return []*resourceapi.ResourceClaim{it}
}

func one(count int64) []*resourceapi.ResourceClaim {
	return claim([]resourceapi.DeviceRequest{request("r", count)})
}

// classes has the one class there is.
type classes struct{ it resourceapi.DeviceClass }

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{&c.it}, nil
}

func (c classes) Get(string) (*resourceapi.DeviceClass, error) { return &c.it, nil }

func theClass() classes {
	it := resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}}
	it.Spec.Selectors = []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)}},
	}
	return classes{it}
}

// outcome is what one pod's turn came to.
type outcome string

const (
	allocated     outcome = "allocated"
	unsatisfiable outcome = "unsatisfiable"
	gaveUp        outcome = "gave up"
	// Kubernetes does not take the problem; line.Why has its words.
	notPossible outcome = "not possible"
)

// turn does what a scheduler does for one pod.
func (p problem) turn(cache *cel.Cache) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	features := structured.Features{PartitionableDevices: true, PrioritizedList: true, AdminAccess: true}
	state := structured.AllocatedState{AllocatedDevices: p.held}
	allocator, err := structured.NewAllocator(ctx, features, state, theClass(), p.slices, cache)
	if err != nil {
		return "", err
	}
	for _, node := range p.nodes {
		result, err := allocator.Allocate(ctx, node, p.claims)
		if ctx.Err() != nil {
			return gaveUp, nil
		}
		if err != nil {
			return "", err
		}
		if result != nil {
			return allocated, nil
		}
	}
	return unsatisfiable, nil
}

// line is what is printed for a case.
type line struct {
	Case    string  `json:"case"`
	Answer  outcome `json:"answer"`
	Why     string  `json:"why,omitempty"`
	Turns   int     `json:"turns"`
	Seconds float64 `json:"secondsPerTurn"`
}

// refused is the line of a case that Kubernetes' code answers with an error: that is a result, and
// the next case can still be measured.
func refused(name string, err error) line {
	return line{Case: name, Answer: notPossible, Why: err.Error()}
}

func measure(name string) (line, error) {
	family, text, _ := strings.Cut(name, "/")
	if family == "cel" {
		return measureSelector(name, text)
	}
	make, known := families[family]
	if !known {
		return line{}, fmt.Errorf("%s: no such family of problems", name)
	}
	var size []int
	for _, word := range strings.Split(text, "x") {
		number, err := strconv.Atoi(word)
		if err != nil || number < 1 {
			return line{}, fmt.Errorf("%s: %q is no size", name, text)
		}
		size = append(size, number)
	}
	if wanted := map[string]int{"empty": 2, "full": 2}[family]; len(size) != max(wanted, 1) {
		return line{}, fmt.Errorf("%s: %q is no size of this family", name, text)
	}
	p := make(size)
	cache := cel.NewCache(10, cel.Features{})
	// The first turn compiles the class's expression.
	answer, err := p.turn(cache)
	if err != nil {
		return refused(name, err), nil
	}
	turns, start := 0, time.Now()
	for turns == 0 || time.Since(start) < enough {
		if answer, err = p.turn(cache); err != nil {
			return refused(name, err), nil
		}
		turns++
		if answer == gaveUp {
			break
		}
	}
	seconds := time.Since(start).Seconds() / float64(turns)
	return line{Case: name, Answer: answer, Turns: turns, Seconds: seconds}, nil
}

func main() {
	for _, name := range os.Args[1:] {
		result, err := measure(name)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(result)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "allocator:", err)
			os.Exit(1)
		}
	}
}
