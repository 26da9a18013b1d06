//! The names that pods, controllers and launchers agree on: labels, annotations, finalizers, ports.

/// Annotation of a requester: a server patch, the template of its direct provider.
pub const SERVER_PATCH_ANNOTATION: &str = "dual-pods.llm-d.ai/server-patch";
/// Annotation of a requester: the name of its InferenceServerConfig.
pub const SERVER_CONFIG_ANNOTATION: &str = "dual-pods.llm-d.ai/inference-server-config";
/// Annotation of a requester: the port of its control interface.
pub const ADMIN_PORT_ANNOTATION: &str = "dual-pods.llm-d.ai/admin-port";
/// Annotation of a requester: the port on which its proxy listens; the proxy is used if it is set.
pub const PROXY_PORT_ANNOTATION: &str = "dual-pods.llm-d.ai/proxy-port";
/// Annotation of a requester: what is wrong, as JSON.
pub const STATUS_ANNOTATION: &str = "dual-pods.llm-d.ai/status";
/// Annotation of requesters and direct providers: the UUIDs of their accelerators.
pub const ACCELERATORS_ANNOTATION: &str = "dual-pods.llm-d.ai/accelerators";
/// Annotation of a provider: the UID and name of the requester it is bound to.
pub const REQUESTER_ANNOTATION: &str = "dual-pods.llm-d.ai/requester";
/// Annotation of a direct provider: the hash of its nominal pod.
pub const NOMINAL_ANNOTATION: &str = "dual-pods.llm-d.ai/nominal";
/// Annotation of a bound launcher: the ID of the instance that serves.
pub const INSTANCE_ID_ANNOTATION: &str = "dual-pods.llm-d.ai/instance-id";
/// Annotation of a bound launcher: the port of that instance.
pub const SERVER_PORT_ANNOTATION: &str = "dual-pods.llm-d.ai/server-port";
/// Annotation of a bound launcher: the request that creates the instance, as JSON.
pub const INSTANCE_CONFIG_ANNOTATION: &str = "dual-pods.llm-d.ai/vllm-config";
/// Annotation of a bound launcher: the labels and annotations it has while the instance serves.
pub const ROUTING_ANNOTATION: &str = "dual-pods.llm-d.ai/isc-routing-metadata";
/// Annotation of a launcher: the hash of its pod on this node.
pub const LAUNCHER_HASH_ANNOTATION: &str = "dual-pods.llm-d.ai/launcher-config-hash";
/// Annotation of a launcher: the hash of its pod on any node.
pub const TEMPLATE_HASH_ANNOTATION: &str = "dual-pods.llm-d.ai/launcher-populator-template-hash";
/// Annotation of a launcher, written by its sidecar: the hash of the states of its instances.
pub const INSTANCE_SIGNATURE_ANNOTATION: &str = "dual-pods.llm-d.ai/vllm-instance-signature";

/// Annotation of a provider: the counter of its bindings, which fences calls to it.
pub const BINDING_COUNTER_ANNOTATION: &str = "actuation.gantry.dev/binding";
/// Annotation of a provider: when it was last bound or unbound, or first served.
pub const LAST_USE_ANNOTATION: &str = "actuation.gantry.dev/last-use";
/// Annotation of a launcher: when each of its instances was last used, as JSON.
pub const INSTANCE_USE_ANNOTATION: &str = "actuation.gantry.dev/instance-use";
/// Annotation of a bound provider whose binding ends: when that began.
pub const UNBINDING_ANNOTATION: &str = "actuation.gantry.dev/unbinding-since";
/// Annotation of a bound provider whose binding ends: why its engine must not be used again.
pub const DISCARD_ANNOTATION: &str = "actuation.gantry.dev/discard";

/// Annotation of a launcher: how often engines have failed in it, as JSON.
pub const ENGINE_FAILURES_ANNOTATION: &str = "actuation.gantry.dev/engine-failures";

/// Annotation of a provider: how it came to serve its requester, as JSON.
pub const RECORD_ANNOTATION: &str = "actuation.gantry.dev/record";

/// Label of a bound pod: the name of the other one.
pub const DUAL_LABEL: &str = "dual-pods.llm-d.ai/dual";
/// Label of a requester that is bound to a launcher: the ID of the instance.
pub const INSTANCE_LABEL: &str = "dual-pods.llm-d.ai/instance";
/// Label of a provider: whether its engine sleeps.
pub const SLEEPING_LABEL: &str = "dual-pods.llm-d.ai/sleeping";
/// Label of a launcher: the name of its LauncherConfig.
pub const LAUNCHER_CONFIG_LABEL: &str = "dual-pods.llm-d.ai/launcher-config-name";
/// Label of a launcher: its node.
pub const NODE_LABEL: &str = "dual-pods.llm-d.ai/node-name";
/// Label of a launcher: the component it is.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// The value of [`COMPONENT_LABEL`] of launchers.
pub const LAUNCHER_COMPONENT: &str = "launcher";
/// Label of an unbound launcher that does not become ready.
pub const STUCK_LABEL: &str = "dual-pods.llm-d.ai/launcher-stuck";
/// Label of nodes, and key of node selectors: the host name.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Prefixes of keys that an InferenceServerConfig may not use.
pub const RESERVED_PREFIXES: [&str; 3] = ["dual-pods.llm-d.ai/", "kubernetes.io/", "k8s.io/"];

/// Finalizer of a bound provider.
pub const PROVIDER_FINALIZER: &str = "dual-pods.llm-d.ai/provider";
/// Finalizer of a requester whose engine is not known to be asleep.
pub const REQUESTER_FINALIZER: &str = "dual-pods.llm-d.ai/requester";
/// The readiness gate of a requester that is set with the relay of its readiness.
pub const READINESS_GATE: &str = "actuation.gantry.dev/serving";

/// The container of requesters and providers that runs the stub, the engine or the launcher.
pub const INFERENCE_SERVER: &str = gantry_api::models::INFERENCE_SERVER;
/// The sidecar of launchers.
pub const NOTIFIER: &str = "state-change-reflector";
/// The ConfigMap that maps accelerators to indices.
pub const GPU_MAP: &str = "gpu-map";
/// The extended resource of accelerators.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// The environment variable that picks accelerators.
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// The port of a requester's control interface unless its annotation says otherwise.
pub const DEFAULT_ADMIN_PORT: u16 = 8081;
/// The port of the API of launchers.
pub const LAUNCHER_PORT: u16 = 8001;

/// The name and field manager of the pairing controller.
pub const PAIRING_MANAGER: &str = "dual-pods-controller";
/// The name and field manager of the population controller.
pub const POPULATION_MANAGER: &str = "launcher-populator";

/// Path of a requester's accelerators.
pub const ACCELERATORS_PATH: &str = "/v1/dual-pods/accelerators";
/// Path of the memory in use on a requester's accelerators.
pub const MEMORY_PATH: &str = "/v1/dual-pods/accelerator-memory-usage";
/// Path that makes a requester ready.
pub const BECOME_READY_PATH: &str = "/v1/become-ready";
/// Path that makes a requester unready.
pub const BECOME_UNREADY_PATH: &str = "/v1/become-unready";
/// Path of the configuration of a requester's proxy.
pub const PROXY_PATH: &str = "/v1/proxy/config";
/// Path of a launcher's instances.
pub const INSTANCES_PATH: &str = "/v2/vllm/instances";

/// Header of a call to a launcher: the requester's UID and the counter of the binding.
pub const BINDING_HEADER: &str = "Gantry-Binding";
/// Header of a call to a launcher: the launcher process it is meant for.
pub const BOOT_HEADER: &str = "Gantry-Boot-Id";

/// Key of an instance's annotations: its InferenceServerConfig.
pub const INSTANCE_CONFIG_KEY: &str = "isc-name";
/// Key of an instance's annotations: its port.
pub const INSTANCE_PORT_KEY: &str = "inference-port";
