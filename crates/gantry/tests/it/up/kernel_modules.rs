//! Modules on the embedded cluster: from a manifest to DaemonSets, labels and back.

use super::*;

pub(super) const MODULES: &str = "/apis/ooto.sigs.k8s.io/v1alpha1/namespaces/default/modules";

fn module(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "ooto.sigs.k8s.io/v1alpha1",
        "kind": "Module",
        "metadata": {"name": name},
        "spec": {
            "selector": {"kubernetes.io/os": "linux"},
            "driverContainer": {"container": {
                "command": ["sleep", "infinity"],
                "kernelMappings": [{"regexp": "^.+$", "containerImage": image}],
            }},
            "devicePlugin": {"container": {"image": "example.com/plugin:1"}},
        },
    })
}

/// How many nodes have a label.
fn labelled(nodes: &Value, label: &str) -> usize {
    let nodes = nodes["items"].as_array().unwrap();
    nodes.iter().filter(|it| it["metadata"]["labels"].get(label).is_some()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_84_a_module_is_loaded_and_unloaded() {
    let cluster = Cluster::ephemeral().await;
    let nodes = cluster.get("/api/v1/nodes").await["items"].as_array().unwrap().len() as u64;
    cluster.post(MODULES, &module("hello", "example.com/hello:${KERNEL_FULL_VERSION}")).await;
    let path = format!("{MODULES}/hello");
    let loaded = cluster
        .wait_until(&path, "both parts are ready on every node", |it| {
            it["status"]["driverContainer"]["numberReady"] == nodes
                && it["status"]["devicePlugin"]["numberReady"] == nodes
        })
        .await;
    assert_eq!(loaded["metadata"]["finalizers"], json!(["ooto.sigs.k8s.io/module-finalizer"]));
    let ready = "oot.node.kubernetes.io/default.hello.ready";
    let plugin = "oot.node.kubernetes.io/default.hello.device-plugin-ready";
    for label in [ready, plugin, "oot.node.kubernetes.io/kernel-version.full"] {
        let all = |it: &Value| labelled(it, label) as u64 == nodes;
        cluster.wait_until("/api/v1/nodes", label, all).await;
    }
    let sets = cluster.get(DAEMON_SETS).await;
    let images: Vec<&Value> = sets["items"].as_array().unwrap().iter().collect();
    assert_eq!(images.len(), 2, "{sets}");
    let namespace = cluster.get("/api/v1/namespaces/default").await;
    assert!(namespace["metadata"]["labels"].get("ooto.sigs.k8s.io/contains-modules").is_some());

    let gone = cluster.client.send(Request::delete(&path)).await.unwrap();
    assert!(gone.status.is_success(), "{}", gone.text());
    let is_empty = |it: &Value| it["items"].as_array().is_some_and(Vec::is_empty);
    for path in [MODULES, DAEMON_SETS] {
        cluster.wait_until(path, "nothing is left", is_empty).await;
    }
    let nodes = cluster.get("/api/v1/nodes").await;
    assert_eq!((labelled(&nodes, ready), labelled(&nodes, plugin)), (0, 0));
    let namespace = cluster.get("/api/v1/namespaces/default").await;
    assert!(namespace["metadata"]["labels"].get("ooto.sigs.k8s.io/contains-modules").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_18_what_breaks_a_rule_is_refused_when_it_is_written() {
    let cluster = Cluster::ephemeral().await;
    let mut bad = module("bad", "example.com/hello:1");
    bad["spec"]["driverContainer"]["container"]["kernelMappings"][0]["regexp"] = json!("(");
    let answer = cluster.client.send(Request::post(MODULES, &bad)).await.unwrap();
    assert_eq!(answer.status, 422, "{}", answer.text());
    let text = answer.text();
    assert!(text.contains("kernelMappings[0].regexp: invalid regexp: unclosed group"), "{text}");

    cluster.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    let modules = MODULES.replace("/default/", "/team/");
    cluster.post(&modules, &module("hello", "example.com/hello:1")).await;
    let is_labelled =
        |it: &Value| it["metadata"]["labels"].get("ooto.sigs.k8s.io/contains-modules").is_some();
    let team = "/api/v1/namespaces/team";
    cluster.wait_until(team, "the namespace says that it has Modules", is_labelled).await;
    let kept = cluster.client.send(Request::delete(team)).await.unwrap();
    assert_eq!(kept.status, 403, "{}", kept.text());
    assert!(kept.text().contains("namespace holds Modules; delete them first"), "{}", kept.text());
    let gone = cluster.client.send(Request::delete(format!("{modules}/hello"))).await.unwrap();
    assert!(gone.status.is_success(), "{}", gone.text());
    cluster.wait_until(team, "the label is gone", |it| !is_labelled(it)).await;
    let gone = cluster.client.send(Request::delete(team)).await.unwrap();
    assert!(gone.status.is_success(), "{}", gone.text());
}

/// The registry is asked for an image that has to be built: while it is missing, a Job builds it.
#[tokio::test(flavor = "multi_thread")]
async fn kms_39_a_missing_image_starts_a_build() {
    let cluster = Cluster::ephemeral().await;
    let host = cluster.process.target().base.trim_start_matches("https://").to_owned();
    let image = format!("{host}/default/hello:${{KERNEL_FULL_VERSION}}");
    let mut built = module("hello", &image);
    built["spec"]["driverContainer"]["container"]["build"] =
        json!({"dockerfile": "FROM scratch\nARG KERNEL_FULL_VERSION\n"});
    cluster.post(MODULES, &built).await;
    let jobs = cluster
        .wait_until("/apis/batch/v1/namespaces/default/jobs", "a Job was created", |it| {
            it["items"].as_array().is_some_and(|it| it.len() == 1)
        })
        .await;
    let job = &jobs["items"][0];
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "gantry.dev/gantry:1", "nodes run no builder");
    assert_eq!(pod["serviceAccountName"], "hello-image-jobs");
    let arguments: Vec<&str> = pod["containers"][0]["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    assert!(arguments.contains(&"KERNEL_FULL_VERSION=6.8.0-gantry"), "{arguments:?}");
    let name = job["metadata"]["name"].as_str().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps?labelSelector=ooto.sigs.k8s.io/job-type";
    let exists = |it: &Value| it["items"].as_array().is_some_and(|it| it.len() == 1);
    let maps = cluster.wait_until(maps, "the Dockerfile is there", exists).await;
    assert_eq!(maps["items"][0]["metadata"]["ownerReferences"][0]["name"], name);
    // An image of another namespace is not seen, and nothing is built for it.
    let mut other = module("other", &format!("{host}/kube-system/hello:1"));
    other["spec"]["driverContainer"]["container"]["build"] = json!({"dockerfile": "FROM scratch"});
    cluster.post(MODULES, &other).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=other";
    let refused = |it: &Value| {
        let mut events = it["items"].as_array().into_iter().flatten();
        events.any(|it| it["reason"] == "ImageCheckFailed")
    };
    cluster.wait_until(events, "the check is refused", refused).await;
    let jobs = cluster.get("/apis/batch/v1/namespaces/default/jobs").await;
    assert_eq!(jobs["items"].as_array().unwrap().len(), 1, "{jobs}");
}

/// What is wrong is said with field, value and remedy, and nothing is started.
#[tokio::test(flavor = "multi_thread")]
async fn kms_43_bad_input_is_reported_and_nothing_is_half_done() {
    let cluster = Cluster::ephemeral().await;
    let host = cluster.process.target().base.trim_start_matches("https://").to_owned();
    let container = |name: &str, fields: Value| {
        let mut module = module(name, &format!("{host}/default/{name}:1"));
        module["spec"]["selector"] = json!({"kubernetes.io/os": "linux"});
        let container = module["spec"]["driverContainer"]["container"].as_object_mut().unwrap();
        container.extend(fields.as_object().unwrap().clone());
        module
    };
    let mappings = |mapping: Value| json!({"kernelMappings": [mapping]});
    let unknown = "example.com/a:${KERNEL_FULL}";
    let table = [
        (
            container("bad", mappings(json!({"regexp": "a(?=b)", "containerImage": "a:1"}))),
            "spec.driverContainer.container.kernelMappings[0].regexp: invalid regexp",
        ),
        (
            container("bad", mappings(json!({"regexp": ".", "containerImage": unknown}))),
            "kernelMappings[0].containerImage: unknown variable \"KERNEL_FULL\"; the variables are",
        ),
        (
            container("bad", json!({"build": {"dockerfile": "RUN make"}})),
            "container.build.dockerfile: no FROM instruction; start with FROM image or FROM scratch",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.yaml");
    for (module, says) in table {
        let answer = cluster.client.send(Request::post(MODULES, &module)).await.unwrap();
        assert_eq!(answer.status, 422, "{}", answer.text());
        let text: Value = answer.json().unwrap();
        let text = text["message"].as_str().unwrap();
        assert!(text.contains(says), "{text}");
        // The same offline.
        std::fs::write(&file, module.to_string()).unwrap();
        let run = gantry(&["check", file.to_str().unwrap()]);
        assert_eq!(run.code, 1, "{}", run.out);
        assert!(format!("{}{}", run.out, run.err).contains(says), "{}{}", run.out, run.err);
    }
    assert_eq!(cluster.get(MODULES).await["items"], json!([]), "nothing was stored");

    let maps = "/api/v1/namespaces/default/configmaps";
    for (name, data) in [
        ("no-key", json!({"Dockerfile": "FROM scratch"})),
        ("no-from", json!({"dockerfile": "RUN make"})),
    ] {
        let map = json!({"metadata": {"name": name}, "data": data});
        cluster.post(maps, &map).await;
        let build = json!({"build": {"dockerfileConfigMap": {"name": name}}});
        cluster.post(MODULES, &container(name, build)).await;
    }
    for (name, reason, says) in [
        ("no-key", "DockerfileNotFound", "ConfigMap default/no-key has no key dockerfile; put the"),
        ("no-from", "InvalidDockerfile", "key dockerfile: no FROM instruction; start with FROM"),
    ] {
        let events =
            format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
        let is_said = |it: &Value| {
            let mut events = it["items"].as_array().into_iter().flatten();
            events.any(|it| {
                it["reason"] == reason && it["message"].as_str().is_some_and(|it| it.contains(says))
            })
        };
        cluster.wait_until(&events, says, is_said).await;
        let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
        let module = format!("module/{name}");
        let run = gantry(&["explain", &module, "--kubeconfig", &kubeconfig, "-o", "json"]);
        assert_eq!(run.code, 0, "{}", run.err);
        let page: Value = serde_json::from_str(&run.out).unwrap();
        let kernel = &page["subsystems"]["modules"]["kernels"][0];
        assert_eq!(kernel["mapping"], json!({"index": 0, "regexp": "^.+$"}), "{page}");
        assert_eq!(kernel["stages"][0]["stage"], "build", "{page}");
        assert_eq!(kernel["missing"][0]["reason"], reason, "{page}");
        assert!(kernel["missing"][0]["message"].as_str().unwrap().contains(says), "{page}");
        let run = gantry(&["explain", &module, "--kubeconfig", &kubeconfig]);
        assert!(
            run.out.contains(&format!("    {reason}: ConfigMap default/{name}")),
            "{}",
            run.out
        );
    }
    assert_eq!(cluster.get(JOBS).await["items"], json!([]));
    let sets = cluster.get(DAEMON_SETS).await;
    let drivers = sets["items"].as_array().unwrap().iter();
    let mut drivers =
        drivers.filter(|it| it["metadata"]["labels"]["ooto.sigs.k8s.io/role"] != "device-plugin");
    assert!(drivers.next().is_none(), "{sets}");
}

/// Copies of Secrets in annotations, environment, logs and messages are not gathered.
#[tokio::test(flavor = "multi_thread")]
async fn kms_91_what_is_gathered_has_no_value_of_a_secret() {
    let cluster = Cluster::ephemeral().await;
    let (key, password) = ("MIIEvQIBADANBgkqhkiG9w0", "hunter2-of-the-registry");
    let docker = json!({"auths": {"quay.io": {"username": "bob", "password": password}}});
    let secret = json!({
        "metadata": {"name": "signing"},
        "stringData": {"key": format!("-----BEGIN\n{key}\n-----END\n"), "other": docker.to_string()},
    });
    cluster.post("/api/v1/namespaces/default/secrets", &secret).await;
    let mut hello = module("hello", "example.com/hello:1");
    let copy = "kubectl.kubernetes.io/last-applied-configuration";
    hello["metadata"]["annotations"] =
        json!({copy: format!("{{\"a\": \"{key}\"}}"), "note": password});
    hello["spec"]["driverContainer"]["container"]["env"] =
        json!([{"name": "TOKEN", "value": "environment-is-private"}]);
    hello["spec"]["driverContainer"]["container"]["args"] = json!([format!("--key={key}")]);
    cluster.post(MODULES, &hello).await;
    let labels = json!({"oot.node.kubernetes.io/module.name": "hello"});
    let logs =
        json!({"gantry.dev/sim-logs": format!("starts\nlogin with {password} failed\n{key}")});
    let pod = json!({"metadata": {"name": "talks", "labels": labels, "annotations": logs},
        "spec": {"containers": [{"name": "main", "image": "a"}]}});
    cluster.post(PODS, &pod).await;
    let runs = |it: &Value| it["status"]["phase"] == "Running";
    cluster.wait_until(&format!("{PODS}/talks"), "runs", runs).await;
    let ready = |it: &Value| it["status"]["driverContainer"]["numberReady"].as_u64() > Some(0);
    cluster.wait_until(&format!("{MODULES}/hello"), "is ready", ready).await;

    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("must-gather");
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
    let run = gantry(&[
        "modules",
        "gather",
        "--output",
        output.to_str().unwrap(),
        "--kubeconfig",
        &kubeconfig,
    ]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    let mut folders = vec![output.clone()];
    let mut files = std::collections::BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&output).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    for (name, content) in &files {
        for value in [key, password, "environment-is-private", "BEGIN"] {
            assert!(!content.contains(value), "{value} is in {name}:\n{content}");
        }
    }
    let file = |name: &str| -> &str {
        files.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", files.keys()))
    };
    assert_eq!(file("errors.txt"), "");
    let own = "namespaces/default/modules.ooto.sigs.k8s.io/hello";
    let shown = file(&format!("{own}.yaml"));
    assert!(shown.contains("kind: Module") && shown.contains("--key=<Secret default/signing key>"));
    let text = file(&format!("{own}.txt"));
    assert!(text.contains("kernelMappings[0], regexp ^.+$"), "{text}");
    let secrets = file("namespaces/default/secrets.yaml");
    assert!(secrets.contains("name: signing") && secrets.contains("- other"), "{secrets}");
    let log = file("namespaces/default/pods/talks/main.log");
    assert!(log.starts_with("starts\n") && log.contains("<Secret default/signing"), "{log}");
    assert!(file("namespaces/default/pods/talks.txt").contains("main  running"));
    assert!(file("cluster/nodes/node-0.yaml").contains("kernelVersion"));
    file("cluster/customresourcedefinitions.apiextensions.k8s.io/modules.ooto.sigs.k8s.io.yaml");
    let kinds = ["daemonsets.apps/hello-driver", "serviceaccounts/hello-driver-container.yaml"];
    for kind in kinds {
        let found = files.keys().any(|it| it.starts_with(&format!("namespaces/default/{kind}")));
        assert!(found, "{kind} in {:?}", files.keys());
    }
    // Nobody may read Secrets: the rest is gathered, and what is missing is named.
    let partial = folder.path().join("partial");
    let binding = json!({"metadata": {"name": "look"}, "roleRef": {"apiGroup":
            "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gantry-viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "looker", "namespace": "default"}]});
    cluster.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.post(accounts, &json!({"metadata": {"name": "looker"}})).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600}});
    let issued = cluster.post(&format!("{accounts}/looker/token"), &request).await;
    let config = std::fs::read_to_string(cluster.process.kubeconfig()).unwrap();
    let mut config = gantry_yaml::read(&config).unwrap().remove(0).to_json();
    config["users"][0]["user"] = json!({"token": issued["status"]["token"]});
    let token = folder.path().join("looker.yaml");
    std::fs::write(&token, config.to_string()).unwrap();
    let run = gantry(&[
        "modules",
        "gather",
        "--output",
        partial.to_str().unwrap(),
        "--kubeconfig",
        token.to_str().unwrap(),
    ]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    let errors = std::fs::read_to_string(partial.join("errors.txt")).unwrap();
    assert!(errors.contains("Secrets in namespace default: may not read"), "{errors}");
    assert!(partial.join(format!("{own}.yaml")).exists(), "{errors}");
}
