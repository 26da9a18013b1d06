//! AppWrappers in a whole cluster, by what they wrap.

use gantry_testkit::embedded::Plan;
use gantry_testkit::http::Request;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Cluster, JOBS, template};
use crate::shared_authors::{by, grant, message, wrapper as author_wrapper};
use crate::shared_leaves::{trees, wrapper as charged};

const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";

/// An AppWrapper with one item.
fn wrapper(name: &str, completion: &str, item: &Value) -> Value {
    let mut generic = json!({ "generictemplate": item });
    if !completion.is_empty() {
        generic["completionstatus"] = json!(completion);
    }
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": { "name": name },
        "spec": { "resources": { "GenericItems": [generic] } },
    })
}

fn has(wrapper: &Value, condition: &str) -> bool {
    let list = wrapper["status"]["conditions"].as_array().into_iter().flatten();
    list.into_iter().any(|it| it["type"] == condition)
}

/// The template of the Job has no labels of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_22_a_wrapped_job_runs_and_completes() {
    let cluster = Cluster::ephemeral().await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "work" },
        "spec": { "completions": 2, "parallelism": 2, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "example.com/work:1",
                "resources": { "requests": { "cpu": "100m" } } }],
        } } },
    });
    cluster.post(WRAPPERS, &wrapper("job", "Complete", &job)).await;
    let path = format!("{WRAPPERS}/job");
    let done = |it: &Value| it["status"]["state"] == "Completed";
    let seen = cluster.wait_until(&path, "completed", done).await;
    for condition in ["Queueing", "HeadOfLine", "Dispatched", "Completed"] {
        assert!(has(&seen, condition), "{condition}: {seen:#}");
    }
    assert_eq!(seen["status"]["Succeeded"], 2, "its pods were found by their label: {seen:#}");
    let job = cluster.get(&format!("{JOBS}/work")).await;
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "AppWrapper", "items stay: {job:#}");
    assert_eq!(job["metadata"]["labels"]["appwrapper.mcad.ibm.com"], "job");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrapped_workloads_and_pods_run() {
    let cluster = Cluster::ephemeral().await;
    let selector = |app: &str| json!({ "matchLabels": { "app": app } });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": 2, "selector": selector("web"), "template": template("web", "example.com/web:1") },
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": { "replicas": 2, "serviceName": "db", "selector": selector("db"),
            "template": template("db", "example.com/db:1") },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "bare" },
        "spec": { "containers": [{ "name": "main", "image": "example.com/bare:1" }] },
    });
    let table = [("deployment", 2, deployment), ("stateful-set", 2, set), ("pod", 1, pod)];
    for (name, _, item) in &table {
        cluster.post(WRAPPERS, &wrapper(name, "", item)).await;
    }
    for (name, pods, _) in &table {
        let running =
            |it: &Value| it["status"]["state"] == "Running" && it["status"]["running"] == *pods;
        cluster.wait_until(&format!("{WRAPPERS}/{name}"), "ran", running).await;
    }
    // Wrapped objects are deleted with the AppWrapper.
    let path = format!("{WRAPPERS}/deployment");
    cluster.client.send(Request::delete(path.clone())).await.unwrap();
    cluster.wait_until(&path, "went", |it| it["code"] == 404).await;
    let web = format!("{}/web", super::DEPLOYMENTS);
    cluster.wait_until(&web, "went with it", |it| it["code"] == 404).await;
}

/// Makes each pod of a template claim a device.
fn with_a_device(mut template: Value) -> Value {
    template["metadata"]["annotations"] = json!({
        "devmgmtproto.k8s.io/device-claims":
            r#"[{"name":"gpu","claim":{"claims":[{"name":"main","deviceType":"gpu"}]}}]"#,
        "devmgmtproto.k8s.io/container-devices": r#"{"main":[{"name":"gpu"}]}"#,
    });
    template["spec"]["schedulerName"] = json!("gantry");
    template
}

/// Two gangs of two pods and three devices: neither gets half of what it needs while the other
/// waits for the other half.
#[tokio::test(flavor = "multi_thread")]
async fn gangs_are_admitted_when_devices_suffice() {
    let cluster = Cluster::ephemeral().await;
    let nodes = cluster.get("/api/v1/nodes").await;
    let node = nodes["items"][0]["metadata"]["name"].clone();
    let group = "/apis/devmgmtproto.k8s.io/v1alpha1";
    let devices: Vec<Value> = (0..3).map(|at| json!({ "name": format!("gpu-{at}") })).collect();
    let driver = json!({ "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceDriver",
        "metadata": { "name": "gpu.example.com" }, "deviceTypes": ["gpu"] });
    let pool = json!({ "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DevicePool",
        "metadata": { "name": "gpus" }, "spec": { "nodeName": node, "driver": "gpu.example.com",
            "deviceType": "gpu", "devices": devices } });
    cluster.post(&format!("{group}/devicedrivers"), &driver).await;
    cluster.post(&format!("{group}/devicepools"), &pool).await;

    let serve = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "serve" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "serve" } },
            "template": with_a_device(template("serve", "example.com/serve:1")) },
    });
    cluster.post(WRAPPERS, &wrapper("serve", "", &serve)).await;
    let first = format!("{WRAPPERS}/serve");
    let runs = |it: &Value| it["status"]["state"] == "Running" && it["status"]["running"] == 2;
    cluster.wait_until(&first, "ran", runs).await;
    let held = cluster.get(&format!("{group}/devicepools/gpus")).await;
    assert_eq!(held["status"]["allocations"].as_array().unwrap().len(), 2, "{held:#}");

    let mut train = with_a_device(template("train", "example.com/train:1"));
    train["spec"]["restartPolicy"] = json!("Never");
    let train = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "train" },
        "spec": { "completions": 2, "parallelism": 2, "template": train },
    });
    cluster.post(WRAPPERS, &wrapper("train", "Complete", &train)).await;
    let second = format!("{WRAPPERS}/train");
    let says = "no devices for all pods at once: 2 pods, 1 of 2 find theirs";
    let waits = |it: &Value| message(it).contains(says);
    cluster.wait_until(&second, "said what it waits for", waits).await;
    assert_eq!(cluster.get(&format!("{JOBS}/train")).await["code"], 404, "nothing of it is there");

    cluster.client.send(Request::delete(first)).await.unwrap();
    let done = |it: &Value| it["status"]["state"] == "Completed";
    cluster.wait_until(&second, "completed", done).await;
}

/// No node type is named: the queue reports which nodes would help, they are added, the job runs,
/// and they are removed.
#[tokio::test(flavor = "multi_thread")]
async fn is_27_nodes_are_chosen_from_shapes_that_may_grow() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nodes.yaml");
    let nodes = "nodes:\n\
                 - {name: plain, cpu: 4, max: 4}\n\
                 - {name: gpu, cpu: 8, max: 3, accelerators: {nvidia.com/gpu: {count: 2}}}\n\
                 - {name: large, cpu: 64, max: 3, accelerators: {nvidia.com/gpu: {count: 8}}}\n";
    std::fs::write(&file, nodes).unwrap();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral").flag("--infer-shapes");
    let plan = plan.flag("--nodes").flag(file.to_str().unwrap());
    let cluster = Cluster::start(plan).await;
    let asks = json!({ "cpu": 3, "nvidia.com/gpu": 2 });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "train" },
        "spec": { "completions": 8, "parallelism": 8, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "example.com/train:1",
                "resources": { "requests": asks, "limits": { "nvidia.com/gpu": 2 } } }],
        } } },
    });
    let mut waits = wrapper("train", "Complete", &job);
    waits["spec"]["resources"]["GenericItems"][0]["custompodresources"] =
        json!([{ "replicas": 8, "requests": asks }]);
    cluster.post(WRAPPERS, &waits).await;
    let path = format!("{WRAPPERS}/train");
    let done = |it: &Value| it["status"]["state"] == "Completed";
    let seen = cluster.wait_until(&path, "completed", done).await;
    // Ten of sixteen accelerators are there: three small nodes have six more, one large node has
    // eight.
    let annotations = &seen["metadata"]["annotations"];
    assert_eq!(annotations["instascale.codeflare.dev/nodes"], "gpu=3", "{seen:#}");
    let told = annotations["instascale.codeflare.dev/shapes"].as_str().unwrap();
    assert!(told.starts_with("needs 3 more nodes of gpu; plain: with 4 more"), "{told}");
    let three = |it: &Value| it["items"].as_array().is_some_and(|it| it.len() == 3);
    cluster.wait_until("/api/v1/nodes", "were given back", three).await;
    let free = |it: &Value| it["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    cluster.wait_until(&path, "was let go", free).await;
}

/// A node fails under a pod that only its AppWrapper creates. No controller ends that pod: it would
/// be reported as running for ever, and then as terminating for ever.
#[tokio::test(flavor = "multi_thread")]
async fn rq_10_a_job_on_a_dead_node_runs_again_elsewhere() {
    let cluster = Cluster::ephemeral().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "bare" },
        "spec": { "containers": [{ "name": "main", "image": "example.com/bare:1" }] },
    });
    let mut gang = wrapper("gang", "", &pod);
    gang["spec"]["schedulingSpec"] = json!({
        "minAvailable": 1, "forceDeletionTimeInSeconds": 5,
        "requeuing": { "timeInSeconds": 1, "pauseTimeInSeconds": 1 },
    });
    cluster.post(WRAPPERS, &gang).await;
    let path = format!("{WRAPPERS}/gang");
    let runs = |it: &Value| it["status"]["running"] == 1;
    cluster.wait_until(&path, "ran", runs).await;
    let bare = format!("{}/bare", super::PODS);
    let first = cluster.get(&bare).await;
    let node = first["spec"]["nodeName"].as_str().unwrap().to_owned();
    let dead = format!("/api/v1/nodes/{node}");
    let down = json!({ "metadata": { "annotations": { "gantry.dev/sim-node": "down" } } });
    cluster.merge(&dead, &down).await;
    // Its state after the node has not reported for a while.
    let unknown = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown",
        "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status." }] } });
    cluster.merge(&format!("{dead}/status"), &unknown).await;

    let said = format!("1 pod on node {node:?}, which is not ready");
    let short = |it: &Value| !runs(it) && message(it).contains(&said);
    cluster.wait_until(&path, "noticed", short).await;
    assert_eq!(cluster.get(&bare).await["status"]["phase"], "Running", "nobody corrects that");
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
    let page = crate::gantry(&["explain", "aw/gang", "--kubeconfig", &kubeconfig]);
    let advice = format!("bring node {node} back, which is not ready");
    assert!(page.out.contains(&advice), "{}{}", page.out, page.err);

    let again = |it: &Value| {
        it["metadata"]["uid"] != first["metadata"]["uid"] && it["status"]["phase"] == "Running"
    };
    let second = cluster.wait_until(&bare, "was made again", again).await;
    assert_ne!(second["spec"]["nodeName"], first["spec"]["nodeName"]);
    let seen = cluster.wait_until(&path, "ran again", runs).await;
    assert_eq!(seen["status"]["numberOfRequeueings"], 1, "{seen:#}");
    let events = cluster.get("/api/v1/namespaces/default/events").await;
    let told =
        |reason: &str| events["items"].as_array().unwrap().iter().any(|it| it["reason"] == reason);
    assert!(told("PodsUnreachable") && told("ForcedDeletion"), "{events:#}");
}

/// Quota trees of other namespaces, in a cluster that does not record the authors of AppWrappers:
/// the queue refuses.
#[tokio::test(flavor = "multi_thread")]
async fn qu_12_and_qu_13_quota_is_enforced_by_the_queue() {
    // There is no webhook for their creation: the queue itself enforces the bindings.
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral").flag("--quota");
    let cluster = Cluster::start(plan.flag("--check-user-access=false")).await;
    let quotas = "/apis/quota.codeflare.dev/v1alpha1/namespaces/default/quotasubtrees";
    for subtree in trees() {
        cluster.post(quotas, &subtree).await;
    }
    // The trees take effect when their statuses are written.
    let leaves = format!("{quotas}/leaves");
    let counted = |it: &Value| it["status"]["children"].is_array();
    cluster.wait_until(&leaves, "was counted", counted).await;
    let tenth = json!({ "cpu": "100m" });
    // An author annotation is not trusted in a cluster that does not record authors.
    let mut stolen = charged("stolen", "research", 1, &tenth);
    let forged = json!({ "username": "eve", "groups": ["researchers"] }).to_string();
    stolen["metadata"]["annotations"] = json!({ "workload.codeflare.dev/gantry-author": forged });
    for object in [charged("foreign", "gold", 1, &tenth), stolen] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.post(WRAPPERS, &object).await;
        let held = |it: &Value| {
            let conditions = it["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|it| it["reason"] == "QuotaLeafForbidden")
        };
        let seen = cluster.wait_until(&format!("{WRAPPERS}/{name}"), "was held", held).await;
        assert!(message(&seen).contains("of quota tree team is bound to "), "{seen:#}");
        let made = cluster.get(&format!("{}/{name}", super::DEPLOYMENTS)).await;
        assert_eq!(made["code"], 404, "nothing is made");
    }
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
    let page = crate::gantry(&["explain", "aw/foreign", "--kubeconfig", &kubeconfig]);
    assert!(
        page.out.contains("leaf \"gold\" of quota tree team is bound to"),
        "{}{}",
        page.out,
        page.err
    );

    // An AppWrapper that is scaled up after its admission is charged for it, and reports it.
    cluster.post(WRAPPERS, &charged("grows", "default", 1, &tenth)).await;
    let path = format!("{WRAPPERS}/grows");
    cluster.wait_until(&path, "ran", |it| it["status"]["running"] == 1).await;
    let more = json!({ "spec": { "replicas": 3 } });
    cluster.merge(&format!("{}/grows", super::DEPLOYMENTS), &more).await;
    let said = "its pods ask for more than was admitted (cpu 300m of 100m)";
    cluster.wait_until(&path, "was noticed", |it| message(it).starts_with(said)).await;
    let charged = |it: &Value| it["status"]["totalAllocation"]["cpu"] == "300m";
    cluster.wait_until(&leaves, "was charged", charged).await;
    let page = crate::gantry(&["explain", "aw/grows", "--kubeconfig", &kubeconfig]);
    assert!(
        page.out.contains("scale its objects down to what was admitted"),
        "{}{}",
        page.out,
        page.err
    );
}

/// If authors are recorded, an AppWrapper for a leaf of others is rejected at its creation.
#[tokio::test(flavor = "multi_thread")]
async fn qu_12_a_leaf_of_others_is_refused_at_admission() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral").flag("--quota");
    let cluster = Cluster::start(plan).await;
    let quotas = "/apis/quota.codeflare.dev/v1alpha1/namespaces/default/quotasubtrees";
    for subtree in trees() {
        cluster.post(quotas, &subtree).await;
    }
    let counted = |it: &Value| it["status"]["children"].is_array();
    cluster.wait_until(&format!("{quotas}/leaves"), "was counted", counted).await;
    let foreign = charged("foreign", "gold", 1, &json!({ "cpu": "100m" }));
    let answer = cluster.client.send(Request::post(WRAPPERS, &foreign)).await.unwrap();
    assert_eq!(answer.status.as_u16(), 403, "{}", answer.text());
    assert!(
        answer.text().contains("of quota tree team is bound to namespace"),
        "{}",
        answer.text()
    );
}

/// A user who may not create a Job cannot create one in an AppWrapper, and a granted permission
/// takes effect at once.
#[tokio::test(flavor = "multi_thread")]
async fn ds_9_a_cluster_asks_what_authors_may_create() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral");
    let cluster = Cluster::start(plan).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let allow = async |name: &str, group: &str, resource: &str| {
        let [role, binding] = grant(name, &["bob"], group, resource);
        cluster.post(&format!("{roles}/roles"), &role).await;
        cluster.post(&format!("{roles}/rolebindings"), &binding).await;
    };
    allow("wraps", "workload.codeflare.dev", "appwrappers").await;
    let create = async |name: &str| {
        let request = by("bob", Request::post(WRAPPERS, &author_wrapper(name)));
        let answer = cluster.client.send(request).await.unwrap();
        assert!(answer.status.is_success(), "{}", answer.text());
    };
    create("refused").await;
    let failed = |it: &Value| it["status"]["state"] == "Failed";
    let seen = cluster.wait_until(&format!("{WRAPPERS}/refused"), "failed", failed).await;
    let said = message(&seen);
    assert!(said.contains("user \"bob\" cannot create resource \"jobs\""), "{said}");
    allow("runs", "batch", "jobs").await;
    create("granted").await;
    let runs = |it: &Value| it["status"]["state"] == "Running";
    cluster.wait_until(&format!("{WRAPPERS}/granted"), "ran", runs).await;
    // `gantry queue` shows that permissions are checked.
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
    let page = crate::gantry(&["queue", "-o", "json", "--kubeconfig", &kubeconfig]);
    let page: Value = serde_json::from_str(&page.out).unwrap();
    assert_eq!(page["settings"]["values"]["checkUserAccess"], true, "{page:#}");
    // All settings in effect, including those of devices.
    let shown = cluster.get("/gantry/status").await;
    let values = &shown["configuration"]["values"];
    let is = |pointer: &str| values.pointer(pointer).and_then(Value::as_bool);
    let switches = ["/mcad/quotaEnabled", "/mcad/checkUserAccess", "/devices/enabled"].map(is);
    assert_eq!(switches, [Some(false), Some(true), Some(true)], "{shown:#}");
}

/// An AppWrapper around one object, and its final state.
async fn wrapped_by(cluster: &Cluster, user: &str, name: &str, object: &Value) -> Value {
    let request = by(user, Request::post(WRAPPERS, &wrapper(name, "", object)));
    let answer = cluster.client.send(request).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    let path = format!("{WRAPPERS}/{name}");
    let settled =
        |it: &Value| ["Failed", "Running"].iter().any(|state| it["status"]["state"] == *state);
    cluster.wait_until(&path, "was decided about", settled).await
}

/// An object of RBAC in the namespace `default`.
fn rbac(kind: &str, name: &str, fields: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name },
    });
    for (field, value) in fields.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

fn binding_to(name: &str, role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    rbac(
        "RoleBinding",
        name,
        &json!({
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": "mallory" }],
        }),
    )
}

/// A user cannot create in an AppWrapper what they may not create themselves.
#[tokio::test(flavor = "multi_thread")]
async fn attack_wrapped_objects_give_no_rights_that_their_author_lacks() {
    let cluster = Cluster::ephemeral().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let [role, wraps] =
        grant("wraps", &["mallory", "carol"], "workload.codeflare.dev", "appwrappers");
    cluster.post(&format!("{roles}/roles"), &role).await;
    cluster.post(&format!("{roles}/rolebindings"), &wraps).await;
    // Carol administrates the namespace, mallory may write AppWrappers and nothing else.
    let mut admin = binding_to("administrates", "admin");
    admin["subjects"][0]["name"] = json!("carol");
    cluster.post(&format!("{roles}/rolebindings"), &admin).await;
    let everything =
        json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "token", "annotations": { "kubernetes.io/service-account.name": "default" } },
    });
    let lacks = "attempting to grant RBAC permissions not currently held";
    let table = [
        (
            "mallory",
            "own",
            binding_to("own", "cluster-admin"),
            "cannot create resource \"rolebindings\"",
        ),
        ("mallory", "view", binding_to("view", "view"), "cannot create resource \"rolebindings\""),
        ("mallory", "token", token, "cannot create resource \"secrets\""),
        ("carol", "bind", binding_to("bind", "cluster-admin"), lacks),
        ("carol", "escalate", rbac("Role", "escalate", &everything), lacks),
    ];
    for (user, name, object, words) in table {
        let seen = wrapped_by(&cluster, user, name, &object).await;
        assert_eq!(seen["status"]["state"], "Failed", "{user} {name}: {seen:#}");
        assert!(message(&seen).contains(words), "{user} {name}: {}", message(&seen));
    }
    for path in ["rolebindings/own", "rolebindings/view", "rolebindings/bind", "roles/escalate"] {
        let found = cluster.client.send(Request::get(format!("{roles}/{path}"))).await.unwrap();
        assert_eq!(found.status.as_u16(), 404, "{path}: {}", found.text());
    }
    // An author may grant permissions that they hold, as without the queue.
    let seen = wrapped_by(&cluster, "carol", "shares", &binding_to("shares", "view")).await;
    assert_eq!(seen["status"]["state"], "Running", "{seen:#}");
    let found =
        cluster.client.send(Request::get(format!("{roles}/rolebindings/shares"))).await.unwrap();
    assert_eq!(found.status.as_u16(), 200, "{}", found.text());
    // Subresource kinds cannot be wrapped, nor can reviews.
    let table = [
        ("v1", "Binding", "the operator may not list, watch, delete bindings"),
        ("policy/v1", "Eviction", "no matches for kind \"Eviction\""),
        ("authentication.k8s.io/v1", "TokenRequest", "no matches for kind \"TokenRequest\""),
        ("authorization.k8s.io/v1", "LocalSubjectAccessReview", "the operator may not list"),
    ];
    for (version, kind, words) in table {
        let name = kind.to_lowercase();
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        let request = Request::post(WRAPPERS, &wrapper(&name, "", &object));
        assert!(cluster.client.send(request).await.unwrap().status.is_success());
        let path = format!("{WRAPPERS}/{name}");
        let seen =
            cluster.wait_until(&path, "failed", |it| it["status"]["state"] == "Failed").await;
        assert!(message(&seen).contains(words), "{kind}: {}", message(&seen));
    }
}

/// If the check is disabled, the queue still has no permission to grant permissions.
#[tokio::test(flavor = "multi_thread")]
async fn attack_the_account_of_the_queue_binds_no_roles() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral");
    let cluster = Cluster::start(plan.flag("--check-user-access=false")).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let [role, wraps] = grant("wraps", &["mallory"], "workload.codeflare.dev", "appwrappers");
    cluster.post(&format!("{roles}/roles"), &role).await;
    cluster.post(&format!("{roles}/rolebindings"), &wraps).await;
    let seen = wrapped_by(&cluster, "mallory", "bind", &binding_to("bind", "cluster-admin")).await;
    assert_eq!(seen["status"]["state"], "Failed", "{seen:#}");
    let words = "User \"system:gantry:queue\"";
    let lacks = "attempting to grant RBAC permissions not currently held";
    let said = message(&seen);
    assert!(said.contains(lacks) || said.contains(words), "{said}");
    // The compatible mode: a user who may not create a Job has one created.
    let job =
        author_wrapper("job")["spec"]["resources"]["GenericItems"][0]["generictemplate"].clone();
    let seen = wrapped_by(&cluster, "mallory", "job", &job).await;
    assert_eq!(seen["status"]["state"], "Running", "{seen:#}");
}

/// An author annotation from before authors were recorded is removed when recording begins, however
/// soon.
#[tokio::test(flavor = "multi_thread")]
async fn attack_an_author_from_before_recording_is_removed() {
    const AUTHOR: &str = "workload.codeflare.dev/gantry-author";
    let folder = tempfile::tempdir().unwrap();
    let plan = || Plan::new(env!("CARGO_BIN_EXE_gantry")).data(folder.path().join("data"));
    let cluster = Cluster::start(plan().flag("--check-user-access=false")).await;
    let mut waits = author_wrapper("forged");
    // More than any node has: it stays pending as long as it exists.
    waits["spec"]["resources"]["GenericItems"][0]["custompodresources"] =
        json!([{ "replicas": 1, "requests": { "cpu": 100_000 } }]);
    let forged = json!({ "username": "admin", "groups": ["system:masters"] }).to_string();
    waits["metadata"]["annotations"] = json!({ AUTHOR: forged });
    cluster.post(WRAPPERS, &waits).await;
    let path = format!("{WRAPPERS}/forged");
    let seen = cluster.get(&path).await;
    assert_eq!(seen["metadata"]["annotations"][AUTHOR], forged, "nobody looks: {seen:#}");
    cluster.stop(Signal::TERM).await;
    let cluster = Cluster::start(plan()).await;
    let seen = cluster.get(&path).await;
    assert_eq!(seen["metadata"]["annotations"][AUTHOR], Value::Null, "{seen:#}");
}

/// A kind that the server does not have fails the AppWrapper, and a kind that is added later is
/// discovered.
#[tokio::test(flavor = "multi_thread")]
async fn ds_1_a_kind_may_come_later() {
    let cluster = Cluster::ephemeral().await;
    let widget = |name: &str| json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name } });
    cluster.post(WRAPPERS, &wrapper("early", "", &widget("one"))).await;
    let failed = |it: &Value| it["status"]["state"] == "Failed";
    let seen = cluster.wait_until(&format!("{WRAPPERS}/early"), "failed", failed).await;
    let text = "default/early creation failure: no matches for kind \"Widget\" in version \"example.com/v1\"";
    let conditions = seen["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|it| it["message"] == text), "{seen:#}");

    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.post(definitions, &definition).await;
    cluster.post(WRAPPERS, &wrapper("late", "Finished=True", &widget("two"))).await;
    let path = format!("{WRAPPERS}/late");
    cluster.wait_until(&path, "ran", |it| it["status"]["state"] == "Running").await;
    // Its conditions are observed like those of any other kind.
    let finished =
        json!({ "status": { "conditions": [{ "type": "Finished", "status": "True" }] } });
    cluster.merge("/apis/example.com/v1/namespaces/default/widgets/two", &finished).await;
    cluster.wait_until(&path, "completed", |it| it["status"]["state"] == "Completed").await;
}

/// An AppWrapper that does not fit waits, reports why, and is admitted when there is free capacity.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrapper_that_does_not_fit_waits_with_a_reason() {
    let cluster = Cluster::ephemeral().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "large" },
        "spec": { "containers": [{ "name": "main", "image": "example.com/bare:1" }] },
    });
    let mut large = wrapper("large", "", &pod);
    large["spec"]["resources"]["GenericItems"][0]["custompodresources"] =
        json!([{ "replicas": 1, "requests": { "cpu": "4000" } }]);
    cluster.post(WRAPPERS, &large).await;
    let path = format!("{WRAPPERS}/large");
    let waits = |it: &Value| it["status"]["queuejobstate"] == "Backoff";
    let seen = cluster.wait_until(&path, "was told why it waits", waits).await;
    let message = seen["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("cpu: needs "), "{message}");
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
    let run = crate::gantry(&["status", "-o", "wide", "--kubeconfig", &kubeconfig]);
    assert!(run.out.contains("appwrapper/large") && run.out.contains("cpu: needs"), "{}", run.out);
    let node = json!({
        "metadata": { "name": "giant", "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "status": {
            "capacity": { "cpu": "8000", "memory": "1Ti", "pods": "110" },
            "allocatable": { "cpu": "8000", "memory": "1Ti", "pods": "110" },
        },
    });
    cluster.post("/api/v1/nodes", &node).await;
    cluster
        .wait_until(&path, "ran when there was room", |it| it["status"]["state"] == "Running")
        .await;
}
