package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
)

// The expressions and devices that both sides evaluate: the cases of BenchmarkDeviceMatches in
// k8s.io/dynamic-resource-allocation/cel that have an answer.
//
//go:embed selectors.json
var selectorsJSON []byte

// selector is an expression and the device it is about.
type selector struct {
	Name                     string
	Expression               string
	Matches                  bool
	Driver                   string
	AllowMultipleAllocations *bool
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	Capacity                 map[resourceapi.QualifiedName]resource.Quantity
}

const (
	matches  outcome = "matches"
	differs  outcome = "does not match"
	compiled outcome = "compiled"
	// Time for one expression, and how many times it is done between two looks at the clock.
	enoughForSelector = enough / 8
	batch             = 64
)

// measureSelector times compile/NAME or evaluate/NAME.
func measureSelector(name, text string) (line, error) {
	what, wanted, _ := strings.Cut(text, "/")
	var all []selector
	if err := json.Unmarshal(selectorsJSON, &all); err != nil {
		return line{}, err
	}
	for _, it := range all {
		if it.Name != wanted {
			continue
		}
		switch what {
		case "compile":
			return repeat(name, it.compile)
		case "evaluate":
			program := it.compiled()
			device := it.device()
			return repeat(name, func() (outcome, error) { return evaluate(program, device) })
		}
	}
	return line{}, fmt.Errorf("%s: no such expression", name)
}

func repeat(name string, turn func() (outcome, error)) (line, error) {
	answer, err := turn()
	turns, start := 0, time.Now()
	for err == nil && time.Since(start) < enoughForSelector {
		for range batch {
			if answer, err = turn(); err != nil {
				break
			}
		}
		turns += batch
	}
	if err != nil {
		return refused(name, err), nil
	}
	seconds := time.Since(start).Seconds() / float64(turns)
	return line{Case: name, Answer: answer, Turns: turns, Seconds: seconds}, nil
}

// compiled compiles as the scheduler does: without an estimate of the cost.
func (s selector) compiled() cel.CompilationResult {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	return compiler.CompileCELExpression(s.Expression, cel.Options{DisableCostEstimation: true})
}

func (s selector) compile() (outcome, error) {
	if program := s.compiled(); program.Error != nil {
		return "", program.Error
	}
	return compiled, nil
}

func (s selector) device() cel.Device {
	capacity := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	for name, amount := range s.Capacity {
		capacity[name] = resourceapi.DeviceCapacity{Value: amount}
	}
	return cel.Device{
		Driver:                   s.Driver,
		AllowMultipleAllocations: s.AllowMultipleAllocations,
		Attributes:               s.Attributes,
		Capacity:                 capacity,
	}
}

func evaluate(program cel.CompilationResult, device cel.Device) (outcome, error) {
	if program.Error != nil {
		return "", program.Error
	}
	is, _, err := program.DeviceMatches(context.Background(), device)
	switch {
	case err != nil:
		return "", err
	case is:
		return matches, nil
	default:
		return differs, nil
	}
}
