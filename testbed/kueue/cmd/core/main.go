// Command core runs Kueue's scheduler and core controllers at a request rate of
// one's choosing. Kueue's own measurement does so with minimalkueue, whose rate
// is fixed at 50 requests a second; everything else here is as there.
package main

import (
	"flag"
	"fmt"
	"os"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	settings "sigs.k8s.io/kueue/apis/config/v1beta2"
	alpha "sigs.k8s.io/kueue/apis/kueue/v1alpha1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	waiting "sigs.k8s.io/kueue/pkg/cache/queue"
	running "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
)

func main() {
	qps := flag.Float64("qps", -1, "requests a second; no limit if negative")
	burst := flag.Int("burst", 0, "requests at once beyond that")
	// The flag --kubeconfig is controller-runtime's own.
	flag.Parse()
	if err := run(float32(*qps), *burst); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(qps float32, burst int) error {
	ctrl.SetLogger(zap.New(zap.Level(zapcore.ErrorLevel)))
	scheme := runtime.NewScheme()
	adders := []func(*runtime.Scheme) error{
		clientgo.AddToScheme, kueue.AddToScheme, alpha.AddToScheme, settings.AddToScheme,
	}
	for _, add := range adders {
		if err := add(scheme); err != nil {
			return err
		}
	}
	target, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	target.QPS, target.Burst = qps, burst

	kind := func(name string) string {
		return schema.GroupKind{Group: kueue.GroupVersion.Group, Kind: name}.String()
	}
	skip := true
	manager, err := ctrl.NewManager(target, ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{
			SkipNameValidation: &skip,
			GroupKindConcurrency: map[string]int{
				kind("Workload"):       5,
				kind("LocalQueue"):     1,
				kind("ClusterQueue"):   1,
				kind("ResourceFlavor"): 1,
			},
		},
	})
	if err != nil {
		return err
	}

	ctx := ctrl.SetupSignalHandler()
	if err := indexer.Setup(ctx, manager.GetFieldIndexer()); err != nil {
		return err
	}
	requeuer := waiting.NewRequeuer()
	if err := manager.Add(requeuer); err != nil {
		return err
	}
	expected := expectations.New()
	cache := running.New(manager.GetClient())
	queues := waiting.NewManager(
		manager.GetClient(), cache, requeuer, waiting.WithPreemptionExpectations(expected),
	)
	go queues.CleanUpOnContext(ctx)
	go cache.CleanUpOnContext(ctx)
	options := core.SetupControllersOpts{PreemptionExpectations: expected}
	if name, err := core.SetupControllers(manager, queues, cache, &settings.Configuration{}, options); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	deciding := scheduler.New(
		queues, cache, manager.GetClient(), manager.GetEventRecorder(constants.AdmissionName),
		scheduler.WithPreemptionExpectations(expected),
	)
	if err := manager.Add(deciding); err != nil {
		return err
	}
	return manager.Start(ctx)
}
