//! The table of variables. A variable that is absent here does not exist.

use super::Variable;
use super::shape::{Field, Shape};

const fn host(
    name: &'static str,
    shape: Shape,
    default: &'static str,
    about: &'static str,
) -> Variable {
    Variable { name, shape, per_cluster: false, default, about }
}

const fn cluster(
    name: &'static str,
    shape: Shape,
    default: &'static str,
    about: &'static str,
) -> Variable {
    Variable { name, shape, per_cluster: true, default, about }
}

const fn field(name: &'static str, shape: Shape) -> Field {
    Field::new(name, shape)
}

const fn required(name: &'static str, shape: Shape) -> Field {
    Field::required(name, shape)
}

const PORT: Shape = Shape::Integer(1, 65_535);
const COUNT: Shape = Shape::Integer(0, 10_000);
const TEXTS: Shape = Shape::List(&Shape::Text);
const ANY_MAP: Shape = Shape::MapOf(&Shape::Any);
const AUTH: Shape = Shape::OneOfOrPrefix(&["none", "app"], &["basic:", "oidc:", "mtls:"]);

const STORAGE_CLASS: Shape = Shape::Map(&[
    field("name", Shape::Text),
    field("default", Shape::Bool),
    field("onDelete", Shape::OneOf(&["archive", "delete", "retain"])),
    field("reclaim", Shape::OneOf(&["Delete", "Retain"])),
]);

const PORT_MAPPING: Shape = Shape::Either(&[
    PORT,
    Shape::Map(&[
        required("container", PORT),
        field("host", PORT),
        field("protocol", Shape::OneOf(&["TCP", "UDP", "SCTP"])),
        field("listen", Shape::Address),
    ]),
]);

const EXTRA_MOUNT: Shape = Shape::Map(&[
    required("container", Shape::Path),
    required("host", Shape::Path),
    field("readOnly", Shape::Bool),
]);

const EXPOSED: Shape = Shape::Map(&[
    required("namespace", Shape::Text),
    required("deployment", Shape::Text),
    required("containerPort", PORT),
    required("hostPort", PORT),
    field("auth", AUTH),
]);

const FRONT: Shape = Shape::Map(&[
    field("enabled", Shape::Bool),
    field("routes", Shape::List(&ANY_MAP)),
    field("tls", ANY_MAP),
    field("stats", ANY_MAP),
    field("proxy", Shape::Any),
    field("watch", Shape::Bool),
]);

const BACKUP: Shape = Shape::Map(&[
    field("schedule", Shape::Text),
    field(
        "keep",
        Shape::Map(&[
            field("last", COUNT),
            field("daily", COUNT),
            field("weekly", COUNT),
            field("monthly", COUNT),
        ]),
    ),
    field("to", Shape::List(&Shape::OneOfOrPrefix(&[], &["dir:", "ssh:", "exec:", "s3:"]))),
    field("recipients", TEXTS),
    field("include_nfs", Shape::Bool),
    field("drill", Shape::Either(&[Shape::Bool, Shape::Text])),
]);

const REGISTRIES: Shape = Shape::MapOf(&Shape::Map(&[
    field("mirrors", TEXTS),
    field("ca", Shape::LocalPath),
    field("auth_file", Shape::LocalPath),
]));

const RESERVED: Shape =
    Shape::Map(&[field("cpu", Shape::Quantity), field("memory", Shape::Quantity)]);

const BACKENDS: Shape = Shape::OneOf(&["kind", "kubeadm", "k3s", "bare", "existing", "embedded"]);
const KEY_TYPES: Shape = Shape::OneOf(&["ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096"]);
const PSA: Shape =
    Shape::OneOf(&["off", "warn-baseline", "enforce-baseline", "enforce-restricted"]);

/// All variables, in the order of the reference.
pub const VARIABLES: &[Variable] = &[
    cluster(
        "gantry_backend",
        BACKENDS,
        "`kind` for one master and no minion, else `kubeadm`",
        "How the cluster is made.",
    ),
    cluster("gantry_cluster_name", Shape::ClusterName, "`gantry`", "The name of the cluster."),
    host(
        "gantry_environment",
        Shape::OneOf(&["dev", "staging", "prod"]),
        "`dev`",
        "What the cluster is for; in `prod` some warnings are errors.",
    ),
    cluster(
        "gantry_kubernetes_version",
        Shape::Version,
        "the newest of the bundle",
        "The version of Kubernetes.",
    ),
    host("gantry_bundle", Shape::LocalPath, "–", "The bundle of binaries, images and manifests."),
    host(
        "gantry_data_dir",
        Shape::Path,
        "`/data`",
        "The folder of etcd, NFS, backups and identity.",
    ),
    host(
        "gantry_etcd_data_dir",
        Shape::Path,
        "`{data}/etcd` with kind, else `/var/lib/etcd`",
        "The folder of etcd.",
    ),
    host(
        "gantry_nfs_mode",
        Shape::OneOf(&["none", "external", "server", "in-cluster"]),
        "`none`; `external` if a server is set",
        "Who serves NFS.",
    ),
    host("gantry_nfs_server", Shape::Address, "–", "The NFS server, as the hosts resolve it."),
    host("gantry_nfs_path", Shape::Path, "`/`", "The export of the NFS server."),
    host(
        "gantry_nfs_export_dir",
        Shape::Path,
        "`{data}/wai-nfs-provisioner`",
        "The folder that a server of our own exports.",
    ),
    host(
        "gantry_nfs_mount_options",
        Shape::Either(&[Shape::OneOf(&["auto"]), TEXTS]),
        "`auto`",
        "Options of NFS mounts; `auto` finds out what the server speaks.",
    ),
    host(
        "gantry_storage_class",
        STORAGE_CLASS,
        "`{name: nfs, default: true, onDelete: archive, reclaim: Delete}`",
        "The storage class of NFS volumes.",
    ),
    host(
        "gantry_port_mappings",
        Shape::List(&PORT_MAPPING),
        "`[80, 443, 8080, 8000]`",
        "Ports of the host that kind publishes.",
    ),
    host(
        "gantry_extra_mounts",
        Shape::List(&EXTRA_MOUNT),
        "`[]`",
        "Folders of the host in the node of kind, besides the two that are always there.",
    ),
    host(
        "gantry_expose",
        Shape::List(&EXPOSED),
        "the ingress gateway on port 80, if there is one",
        "Deployments that get a port of the host.",
    ),
    host("gantry_front", FRONT, "`{enabled: false}`", "The balancer that routes by host name."),
    host(
        "gantry_firewall",
        Shape::OneOf(&["off", "report", "managed"]),
        "`report`",
        "Whether packet filters are left alone, compared or written.",
    ),
    host(
        "gantry_admin_cidrs",
        Shape::List(&Shape::Cidr),
        "`[]`: from anywhere, with a warning",
        "Networks that reach ssh and the API.",
    ),
    cluster("gantry_pod_cidr", Shape::Cidr, "`10.244.0.0/16`", "The network of pods."),
    cluster("gantry_service_cidr", Shape::Cidr, "`10.96.0.0/16`", "The network of services."),
    cluster(
        "gantry_network",
        Shape::OneOfOrPrefix(&["bridge", "none"], &["manifest:"]),
        "`bridge`",
        "The network plugin: the built-in one, an add-on, or none.",
    ),
    host(
        "gantry_proxy_mode",
        Shape::OneOf(&["auto", "nftables", "iptables", "none"]),
        "`auto`",
        "How services are routed.",
    ),
    host("gantry_dns", Shape::OneOf(&["coredns", "none"]), "`coredns`", "The DNS of the cluster."),
    cluster(
        "gantry_api_endpoint",
        Shape::HostPort,
        "the first master",
        "Where clients reach the API; required with several masters.",
    ),
    cluster(
        "gantry_api_sans",
        Shape::List(&Shape::Address),
        "`[]`",
        "More names and addresses in the certificate of the API.",
    ),
    host(
        "gantry_runtime",
        Shape::OneOf(&["containerd", "docker"]),
        "`containerd`",
        "The container runtime; docker only with kind.",
    ),
    host(
        "gantry_cgroup_driver",
        Shape::OneOf(&["auto", "systemd", "cgroupfs"]),
        "`auto`",
        "Who manages control groups.",
    ),
    cluster(
        "gantry_encryption",
        Shape::OneOf(&["off", "secretbox", "aesgcm"]),
        "`secretbox`",
        "How secrets are encrypted in etcd.",
    ),
    cluster(
        "gantry_encryption_resources",
        TEXTS,
        "`[secrets]`",
        "Which resources are encrypted in etcd.",
    ),
    cluster(
        "gantry_audit",
        Shape::OneOfOrPrefix(&["off", "metadata", "full"], &["/"]),
        "`metadata`",
        "The audit policy: a level, or the path of one.",
    ),
    cluster("gantry_pod_security", PSA, "`warn-baseline`", "The pod security standard."),
    cluster("gantry_key_type", KEY_TYPES, "`ecdsa-p256`", "The keys of certificates."),
    cluster("gantry_sa_key_type", KEY_TYPES, "`rsa-2048`", "The key of service accounts."),
    cluster("gantry_cert_days", Shape::Integer(1, 3_650), "365", "Days that certificates live."),
    cluster("gantry_ca_days", Shape::Integer(1, 36_500), "3650", "Days that authorities live."),
    host(
        "gantry_backup",
        BACKUP,
        "every six hours to `dir:{data}/backup`",
        "When backups are made, where they go and how long they stay.",
    ),
    host("gantry_profiles", Shape::List(&Shape::Any), "`[]`", "Tenants with a namespace each."),
    host("gantry_addons", Shape::List(&Shape::Any), "`[]`", "Add-ons to install."),
    host(
        "gantry_packages",
        Shape::OneOf(&["distro", "bundle", "none"]),
        "`distro`",
        "Where packages come from; `none` only checks.",
    ),
    host(
        "gantry_registries",
        REGISTRIES,
        "`{}`",
        "Mirrors, authority and credentials by registry.",
    ),
    host("gantry_http_proxy", Shape::Text, "–", "The HTTP proxy of the runtime."),
    host("gantry_https_proxy", Shape::Text, "–", "The HTTPS proxy of the runtime."),
    host("gantry_no_proxy", Shape::Text, "–", "What is reached without a proxy."),
    host(
        "gantry_reserved",
        RESERVED,
        "`{cpu: 500m, memory: 1Gi}`",
        "What the kubelet reserves for the system.",
    ),
    host("gantry_node_labels", Shape::MapOf(&Shape::Any), "`{}`", "Labels of the node."),
    host("gantry_node_taints", Shape::List(&Shape::Any), "`[]`", "Taints of the node."),
    host("gantry_acknowledge", TEXTS, "`[]`", "Names of warnings that are accepted."),
    host(
        "gantry_host_key",
        Shape::OneOf(&["strict", "accept-new"]),
        "`strict`",
        "What happens with an unknown host key.",
    ),
    host(
        "gantry_swap",
        Shape::OneOf(&["report", "off", "keep"]),
        "`report`",
        "What happens with swap.",
    ),
    host("gantry_rolling", Shape::Rolling, "`1`", "How many minions are restarted at once."),
    host("gantry_kind_config", Shape::LocalPath, "–", "A kind configuration to merge."),
    host(
        "gantry_api_public",
        Shape::Bool,
        "`false`",
        "Whether kind publishes the API on `ansible_host`.",
    ),
    host("gantry_kubeconfig", Shape::LocalPath, "–", "The kubeconfig of an existing cluster."),
    cluster("gantry_etcd_endpoints", TEXTS, "`[]`", "Endpoints of an etcd outside of the cluster."),
    host(
        "gantry_nfs_provisioner_aliases",
        TEXTS,
        "`[]`",
        "More provisioner names that are answered.",
    ),
    host(
        "gantry_rbac_expect",
        Shape::List(&Shape::Any),
        "`[]`",
        "More rows of the permission matrix.",
    ),
    host(
        "gantry_accelerators",
        Shape::OneOf(&["auto", "off"]),
        "`auto`",
        "Whether accelerators are set up.",
    ),
];
