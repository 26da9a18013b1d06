//! Columns of workloads, and of kinds that limit or scale them.

use super::{AGE, Column, NAME, NAME_TEXT, boolean, integer, text, wide};

pub(in crate::print) const PODS: &[Column] = &[
    NAME,
    text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
    text("Status", "The aggregate status of the containers in this pod."),
    text(
        "Restarts",
        "The number of times the containers in this pod have been restarted and when the last \
         container in this pod has restarted.",
    ),
    AGE,
    wide(
        "IP",
        "podIP address allocated to the pod. Routable at least within the cluster. Empty if not \
         yet allocated.",
    ),
    wide(
        "Node",
        "NodeName indicates in which node this pod is scheduled. If empty, this pod is a \
         candidate for scheduling by the scheduler defined in schedulerName. Once this field is \
         set, the kubelet for this node becomes responsible for the lifecycle of this pod. This \
         field should not be used to express a desire for the pod to be scheduled on a specific \
         node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename",
    ),
    wide(
        "Nominated Node",
        "nominatedNodeName is set only when this pod preempts other pods on the node, but it \
         cannot be scheduled right away as preemption victims receive their graceful termination \
         periods. This field does not guarantee that the pod will be scheduled on this node. \
         Scheduler may decide to place the pod elsewhere if other nodes become available sooner. \
         Scheduler may also decide to give the resources on this node to a higher priority pod \
         that is created after preemption. As a result, this field may be different than \
         PodSpec.nodeName when the pod is scheduled.",
    ),
    wide(
        "Readiness Gates",
        "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready \
         when all its containers are ready AND all conditions specified in the readiness gates \
         have status equal to \"True\" More info: \
         https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates",
    ),
];

pub(in crate::print) const PODTEMPLATES: &[Column] = &[
    NAME,
    text("Containers", "Names of each container in the template."),
    text("Images", "Images referenced by each container in the template."),
    text("Pod Labels", "The labels for the pod template."),
];

pub(in crate::print) const REPLICATIONCONTROLLERS: &[Column] = &[
    NAME,
    integer(
        "Desired",
        "Replicas is the number of desired replicas. This is a pointer to distinguish between \
         explicit zero and unspecified. Defaults to 1. More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    integer(
        "Current",
        "Replicas is the most recently observed number of replicas. More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    integer("Ready", "The number of ready replicas for this replication controller."),
    AGE,
    wide("Containers", "Names of each container in the template."),
    wide("Images", "Images referenced by each container in the template."),
    wide(
        "Selector",
        "Selector is a label query over pods that should match the Replicas count. If Selector is \
         empty, it is defaulted to the labels present on the Pod template. Label keys and values \
         that must match in order to be controlled by this replication controller, if empty \
         defaulted to labels on Pod template. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::print) const REPLICASETS: &[Column] = &[
    NAME,
    integer(
        "Desired",
        "Replicas is the number of desired pods. This is a pointer to distinguish between \
         explicit zero and unspecified. Defaults to 1. More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    integer(
        "Current",
        "Replicas is the most recently observed number of non-terminating pods. More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    integer(
        "Ready",
        "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition.",
    ),
    AGE,
    wide("Containers", "Names of each container in the template."),
    wide("Images", "Images referenced by each container in the template."),
    wide(
        "Selector",
        "Selector is a label query over pods that should match the replica count. If the selector \
         is empty, it is defaulted to the labels present on the pod template. Label keys and \
         values that must match in order to be controlled by this replica set. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::print) const DEPLOYMENTS: &[Column] = &[
    NAME,
    text("Ready", "Number of the pod with ready state"),
    text(
        "Up-to-date",
        "Total number of non-terminating pods targeted by this deployment that have the desired \
         template spec.",
    ),
    text(
        "Available",
        "Total number of available non-terminating pods (ready for at least minReadySeconds) \
         targeted by this deployment.",
    ),
    AGE,
    wide("Containers", "Names of each container in the template."),
    wide("Images", "Images referenced by each container in the template."),
    wide(
        "Selector",
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be \
         the ones affected by this deployment.",
    ),
];

pub(in crate::print) const STATEFULSETS: &[Column] = &[
    NAME,
    text("Ready", "Number of the pod with ready state"),
    AGE,
    wide("Containers", "Names of each container in the template."),
    wide("Images", "Images referenced by each container in the template."),
];

pub(in crate::print) const DAEMONSETS: &[Column] = &[
    NAME,
    integer(
        "Desired",
        "The total number of nodes that should be running the daemon pod (including nodes \
         correctly running the daemon pod). More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    integer(
        "Current",
        "The number of nodes that are running at least 1 daemon pod and are supposed to run the \
         daemon pod. More info: \
         https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    integer(
        "Ready",
        "The number of nodes that should be running the daemon pod and have one or more of the \
         daemon pod running and ready.",
    ),
    integer("Up-to-date", "The total number of nodes that are running updated daemon pod"),
    integer(
        "Available",
        "The number of nodes that should be running the daemon pod and have one or more of the \
         daemon pod running and available (ready for at least spec.minReadySeconds)",
    ),
    text(
        "Node Selector",
        "NodeSelector is a selector which must be true for the pod to fit on a node. Selector \
         which must match a node's labels for the pod to be scheduled on that node. More info: \
         https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
    ),
    AGE,
    wide("Containers", "Names of each container in the template."),
    wide("Images", "Images referenced by each container in the template."),
    wide(
        "Selector",
        "A label query over pods that are managed by the daemon set. Must match in order to be \
         controlled. If empty, defaulted to labels on Pod template. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::print) const CONTROLLERREVISIONS: &[Column] = &[
    NAME,
    text("Controller", "Controller of the object"),
    text("Revision", "revision indicates the revision of the state represented by Data."),
    AGE,
];

pub(in crate::print) const JOBS: &[Column] = &[
    NAME,
    text("Status", "Status of the job."),
    text(
        "Completions",
        "The number of pods which reached phase Succeeded. The value increases monotonically for \
         a given spec. However, it may decrease in reaction to scale down of elastic indexed \
         jobs.",
    ),
    text("Duration", "Time required to complete the job."),
    AGE,
    wide("Containers", "Names of each container in the template."),
    wide("Images", "Images referenced by each container in the template."),
    wide(
        "Selector",
        "A label query over pods that should match the pod count. Normally, the system sets this \
         field for you. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::print) const CRONJOBS: &[Column] = &[
    NAME,
    text("Schedule", "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron."),
    text(
        "Timezone",
        "The time zone name for the given schedule, see \
         https://en.wikipedia.org/wiki/List_of_tz_database_time_zones. If not specified, this \
         will default to the time zone of the kube-controller-manager process. The set of valid \
         time zone names and the time zone offset is loaded from the system-wide time zone \
         database by the API server during CronJob validation and the controller manager during \
         execution. If no system-wide time zone database can be found a bundled version of the \
         database is used instead. If the time zone name becomes invalid during the lifetime of a \
         CronJob or due to a change in host configuration, the controller will stop creating new \
         new Jobs and will create a system event with the reason UnknownTimeZone. More \
         information can be found in \
         https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones",
    ),
    boolean(
        "Suspend",
        "This flag tells the controller to suspend subsequent executions, it does not apply to \
         already started executions.  Defaults to false.",
    ),
    integer("Active", "A list of pointers to currently running jobs."),
    text("Last Schedule", "Information when was the last time the job was successfully scheduled."),
    AGE,
    wide("Containers", "Names of each container in the template."),
    wide("Images", "Images referenced by each container in the template."),
    wide(
        "Selector",
        "A label query over pods that should match the pod count. Normally, the system sets this \
         field for you. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::print) const PODDISRUPTIONBUDGETS: &[Column] = &[
    NAME,
    text("Min Available", "The minimum number of pods that must be available."),
    text("Max Unavailable", "The maximum number of pods that may be unavailable."),
    integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
    AGE,
];

pub(in crate::print) const HORIZONTALPODAUTOSCALERS: &[Column] = &[
    NAME,
    text(
        "Reference",
        "scaleTargetRef points to the target resource to scale, and is used to the pods for which \
         metrics should be collected, as well as to actually change the replica count.",
    ),
    text(
        "Targets",
        "metrics contains the specifications for which to use to calculate the desired replica \
         count (the maximum replica count across all metrics will be used).  The desired replica \
         count is calculated multiplying the ratio between the target value and the current value \
         by the current number of pods.  Ergo, metrics used must decrease as the pod count is \
         increased, and vice-versa.  See the individual metric source types for more information \
         about how each type of metric must respond.",
    ),
    text(
        "MinPods",
        "minReplicas is the lower limit for the number of replicas to which the autoscaler can \
         scale down.  It defaults to 1 pod.  minReplicas is allowed to be 0 if the alpha feature \
         gate HPAScaleToZero is enabled and at least one Object or External metric is configured.  \
         Scaling is active as long as at least one metric value is available.",
    ),
    text(
        "MaxPods",
        "maxReplicas is the upper limit for the number of replicas to which the autoscaler can \
         scale up. It cannot be less that minReplicas.",
    ),
    text(
        "Replicas",
        "currentReplicas is current number of replicas of pods managed by this autoscaler, as \
         last seen by the autoscaler.",
    ),
    AGE,
];

pub(in crate::print) const SCALES: &[Column] = &[
    text("Name", NAME_TEXT),
    integer("Desired", "replicas is the desired number of instances for the scaled object."),
    integer(
        "Available",
        "replicas is the actual number of observed instances of the scaled object.",
    ),
    AGE,
];
