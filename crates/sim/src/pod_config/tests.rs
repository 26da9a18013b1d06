use serde_json::{Value, json};

use super::*;

struct FakeSources(Vec<(SourceKind, &'static str, SourceLookup)>);

impl Sources for FakeSources {
    fn find(&self, key: &SourceKey) -> SourceLookup {
        let found = self.0.iter().find(|(kind, name, _)| *kind == key.kind && *name == key.name);
        found.map_or(SourceLookup::Unknown, |(_, _, it)| it.clone())
    }
}

fn present(data: &[(&str, &str)]) -> SourceLookup {
    let one = |(key, value): &(&str, &str)| ((*key).to_owned(), Bytes::from((*value).to_owned()));
    SourceLookup::Present(Arc::new(data.iter().map(one).collect()))
}

fn fake_sources() -> FakeSources {
    FakeSources(vec![
        (SourceKind::ConfigMap, "c", present(&[("one", "1"), ("two", "2"), ("no=t", "x")])),
        (SourceKind::Secret, "s", present(&[("key", "hush")])),
        (SourceKind::ConfigMap, "gone", SourceLookup::Absent),
        (SourceKind::Secret, "gone", SourceLookup::Absent),
        (SourceKind::Secret, "denied", SourceLookup::Failed("forbidden".to_owned())),
    ])
}

fn pod(spec: &Value) -> Pod {
    let pod = json!({
        "metadata": {
            "name": "p", "namespace": "n", "uid": "u-1",
            "labels": {"app": "web", "tier": "a\"b"}, "annotations": {"note": "hi"},
        },
        "spec": spec,
        "status": {"podIP": "127.16.0.5", "podIPs": [{"ip": "127.16.0.5"}], "hostIP": "127.16.0.1"},
    });
    serde_json::from_value(pod).unwrap()
}

fn node() -> Node {
    let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "memory": "1Gi"}}});
    serde_json::from_value(node).unwrap()
}

fn resolved(container: &Value) -> Result<BTreeMap<String, String>, Unresolved> {
    let pod = pod(&json!({
        "nodeName": "n1", "serviceAccountName": "acc",
        "containers": [container, {"name": "other", "resources": {"requests": {"memory": "3Mi"}}}],
    }));
    let (known, node) = (fake_sources(), node());
    let server = ApiServer { host: "127.0.0.1".to_owned(), port: 6443 };
    let context =
        ResolveContext { pod: &pod, node: Some(&node), sources: &known, api_server: Some(&server) };
    environment(&context, &pod.spec.containers[0])
}

#[test]
fn variables_are_resolved_from_their_sources() {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let amount = |resource: &str, more: Value| {
        let mut reference = json!({"resource": resource});
        for (name, value) in more.as_object().unwrap() {
            reference[name] = value.clone();
        }
        json!({"resourceFieldRef": reference})
    };
    let key = |kind: &str, name: &str, key: &str, optional: bool| {
        let mut source = json!({});
        source[kind] = json!({"name": name, "key": key, "optional": optional});
        source
    };
    let table = [
        (field("metadata.name"), Some("p")),
        (field("metadata.namespace"), Some("n")),
        (field("metadata.uid"), Some("u-1")),
        (field("metadata.labels['app']"), Some("web")),
        (field("metadata.labels['none']"), Some("")),
        (field("metadata.annotations['note']"), Some("hi")),
        (field("spec.nodeName"), Some("n1")),
        (field("spec.serviceAccountName"), Some("acc")),
        (field("status.hostIP"), Some("127.16.0.1")),
        (field("status.podIP"), Some("127.16.0.5")),
        (field("status.podIPs"), Some("127.16.0.5")),
        (amount("limits.cpu", json!({})), Some("2")),
        (amount("limits.cpu", json!({"divisor": "1m"})), Some("1500")),
        (amount("requests.memory", json!({"divisor": "1Ki"})), Some("2048")),
        (amount("requests.memory", json!({"containerName": "other", "divisor": "1Mi"})), Some("3")),
        (
            amount("limits.memory", json!({"containerName": "other", "divisor": "1Mi"})),
            Some("1024"),
        ),
        (key("configMapKeyRef", "c", "one", false), Some("1")),
        (key("secretKeyRef", "s", "key", false), Some("hush")),
        (key("configMapKeyRef", "c", "none", true), None),
        (key("configMapKeyRef", "gone", "one", true), None),
        (key("secretKeyRef", "gone", "key", true), None),
    ];
    for (source, expected) in table {
        let container = json!({
            "name": "c", "env": [{"name": "X", "valueFrom": source}],
            "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "2Mi"}},
        });
        let found = resolved(&container).unwrap();
        assert_eq!(found.get("X").map(String::as_str), expected, "{source}");
    }
    let faults = [
        (key("configMapKeyRef", "gone", "one", false), "configmap \"gone\" not found"),
        (key("secretKeyRef", "gone", "k", false), "secret \"gone\" not found"),
        (key("configMapKeyRef", "c", "none", false), "couldn't find key none in ConfigMap n/c"),
        (key("secretKeyRef", "s", "none", false), "couldn't find key none in Secret n/s"),
        (key("secretKeyRef", "denied", "k", true), "failed to get secret \"denied\": forbidden"),
        (field("status.phase"), "unsupported fieldPath: status.phase"),
        (amount("cpu", json!({})), "unsupported container resource : cpu"),
        (json!({}), "a variable has a valueFrom of a kind that simulated nodes do not support"),
    ];
    for (source, words) in faults {
        let container = json!({"name": "c", "env": [{"name": "X", "valueFrom": source}]});
        assert_eq!(resolved(&container), Err(Unresolved::Invalid(words.to_owned())), "{source}");
    }
    let unread = key("secretKeyRef", "never-read", "k", false);
    let container = json!({"name": "c", "env": [{"name": "X", "valueFrom": unread}]});
    assert_eq!(resolved(&container), Err(Unresolved::Pending));
}

#[test]
fn later_variables_override_earlier_ones() {
    let container = json!({
        "name": "c",
        "envFrom": [
            {"configMapRef": {"name": "c"}},
            {"prefix": "S_", "secretRef": {"name": "s"}},
            {"secretRef": {"name": "gone", "optional": true}},
        ],
        "env": [
            {"name": "two", "value": "mine"},
            {"name": "A", "value": "$(one)-$(two)-$(LATER)-$$(one)"},
            {"name": "LATER", "value": "x"},
            {"name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"},
            {"name": "HOME", "value": "/home"},
        ],
    });
    let found = resolved(&container).unwrap();
    let table = [
        ("one", "1"),
        ("two", "mine"),
        ("S_key", "hush"),
        ("A", "1-mine-$(LATER)-$(one)"),
        ("LATER", "x"),
        ("URL", "https://127.0.0.1:6443"),
        ("HOME", "/home"),
        ("HOSTNAME", "p"),
        ("KUBERNETES_PORT_443_TCP_ADDR", "127.0.0.1"),
    ];
    for (name, value) in table {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!found.contains_key("no=t"), "no name of a variable");
    let must = json!({"name": "c", "envFrom": [{"configMapRef": {"name": "gone"}}]});
    assert_eq!(
        resolved(&must),
        Err(Unresolved::Invalid("configmap \"gone\" not found".to_owned()))
    );
}

#[test]
fn variable_references_are_expanded() {
    let known = |name: &str| match name {
        "A" => Some("one"),
        "EMPTY" => Some(""),
        _ => None,
    };
    let table = [
        ("$(A)", "one"),
        ("x$(A)y$(A)", "xoneyone"),
        ("$(EMPTY)", ""),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$$$$(A)", "$$(A)"),
        ("$(A", "$(A"),
        ("$A $", "$A $"),
        ("$ä$(A)", "$äone"),
        ("", ""),
    ];
    for (text, expected) in table {
        assert_eq!(expand(text, known), expected, "{text:?}");
    }
}

#[test]
fn a_shell_with_one_line_is_its_program() {
    let variables = BTreeMap::from([("A".to_owned(), "a b".to_owned())]);
    let read = |words: &[&str], args: &[&str]| {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "command": words, "args": args})).unwrap();
        let Command { program, args, variables } = command(&container, &variables);
        let set = variables.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}{}: {}", set.collect::<String>(), program.unwrap_or_default(), args.join("|"))
    };
    let table: [(&[&str], &[&str], &str); 11] = [
        (&[], &["--x", "$(A)"], ": --x|a b"),
        (&["prog", "$(A)"], &["y"], "prog: a b|y"),
        (&["/bin/sh", "-c", "exec prog --flag x"], &[], "prog: --flag|x"),
        (
            &["/bin/bash", "-c"],
            &["python3 launcher.py --port 8001"],
            "python3: launcher.py|--port|8001",
        ),
        (&["bash", "-ec", "prog \"$A\" '$A'"], &[], "prog: a b|$A"),
        (&["sh", "-e", "-c", "B=1 prog"], &[], "B=1 prog: "),
        (&["sh", "-c", "one; two"], &[], "sh: -c|one; two"),
        (&["sh", "-c", "prog 'open"], &[], "sh: -c|prog 'open"),
        (&["sh", "script"], &[], "sh: script"),
        (&["sh", "-c", "prog", "argument"], &[], "sh: -c|prog|argument"),
        (&["env", "-c", "x"], &[], "env: -c|x"),
    ];
    for (words, args, expected) in table {
        assert_eq!(read(words, args), expected, "{words:?} {args:?}");
    }
}

fn files_of(volume: &Value) -> Result<BTreeMap<String, (String, u32)>, Unresolved> {
    let pod = pod(&json!({"volumes": [volume], "containers": [{"name": "c"}]}));
    let known = fake_sources();
    let context = ResolveContext { pod: &pod, node: None, sources: &known, api_server: None };
    let all = volumes(&context)?;
    let VolumeContent::Files(files) = &all["v"] else { panic!("{all:?}") };
    let show = |file: &VolumeFile| match &file.content {
        FileContent::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        FileContent::Token { audience, expiration_seconds } => {
            format!("token {audience} {expiration_seconds}")
        }
    };
    Ok(files.iter().map(|(path, file)| (path.clone(), (show(file), file.mode))).collect())
}

#[test]
fn volumes_contain_their_objects() {
    let table = [
        (
            json!({"secret": {"secretName": "s", "defaultMode": 0o400}}),
            vec![("key", "hush", 0o400)],
        ),
        (
            json!({"configMap": {"name": "c", "items": [{"key": "one", "path": "a/b", "mode": 0o4755}]}}),
            vec![("a/b", "1", 0o755)],
        ),
        (json!({"configMap": {"name": "gone", "optional": true}}), vec![]),
        (
            json!({"downwardAPI": {"items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "requests.cpu"}},
            ]}}),
            vec![("cpu", "0", 0o644), ("labels", "app=\"web\"\ntier=\"a\\\"b\"", 0o644)],
        ),
        (
            json!({"projected": {"defaultMode": 0o440, "sources": [
                {"secret": {"name": "s", "items": [{"key": "key", "path": "k"}]}},
                {"configMap": {"name": "gone", "optional": true}},
                {"serviceAccountToken": {"path": "token", "audience": "a", "expirationSeconds": 600}},
                {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]}}),
            vec![("k", "hush", 0o440), ("ns", "n", 0o440), ("token", "token a 600", 0o440)],
        ),
    ];
    for (mut volume, expected) in table {
        volume["name"] = json!("v");
        let file =
            |(path, text, mode): (&str, &str, u32)| (path.to_owned(), (text.to_owned(), mode));
        let expected: BTreeMap<_, _> = expected.into_iter().map(file).collect();
        assert_eq!(files_of(&volume).unwrap(), expected, "{volume}");
    }
}

#[test]
fn unresolved_volumes_are_reported() {
    let item = |path: &str| json!({"secret": {"secretName": "s", "items": [{"key": "key", "path": path}]}});
    let table = [
        (json!({"secret": {"secretName": "gone"}}), "secret \"gone\" not found"),
        (
            json!({"secret": {"secretName": "s", "items": [{"key": "none", "path": "x"}]}}),
            "references non-existent secret key: none",
        ),
        (item("../x"), "begins with `..`"),
        (item("a/../../x"), "begins with `..`"),
        (item("/etc/x"), "is absolute"),
        (item(""), "names no file"),
        (item("..data"), "begins with `..`"),
        (
            json!({"projected": {"sources": [{"clusterTrustBundle": {"name": "x"}}]}}),
            "not provided by simulated nodes",
        ),
    ];
    for (mut volume, words) in table {
        volume["name"] = json!("v");
        let Err(Unresolved::Invalid(fault)) = files_of(&volume) else { panic!("{volume}") };
        let begins = "MountVolume.SetUp failed for volume \"v\" : ";
        assert!(fault.starts_with(begins) && fault.contains(words), "{fault}");
    }
    // A key that no server would store, from a server that did.
    let pod = pod(&json!({"volumes": [{"name": "v", "configMap": {"name": "bad"}}]}));
    for key in ["a/b", "..", "../x"] {
        let known = FakeSources(vec![(SourceKind::ConfigMap, "bad", present(&[(key, "x")]))]);
        let context = ResolveContext { pod: &pod, node: None, sources: &known, api_server: None };
        assert!(volumes(&context).is_err(), "{key}");
    }
    let large = "x".repeat(MAX_POD_BYTES + 1);
    let known = FakeSources(vec![(SourceKind::ConfigMap, "bad", present(&[("key", &large)]))]);
    let context = ResolveContext { pod: &pod, node: None, sources: &known, api_server: None };
    assert!(
        matches!(volumes(&context), Err(Unresolved::Invalid(it)) if it.contains("smaller objects"))
    );
}

#[test]
fn all_objects_a_pod_names_are_read() {
    let pod = pod(&json!({
        "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "a"}}]}],
        "containers": [{"name": "c", "env": [
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "k"}}},
        ]}],
        "volumes": [
            {"name": "1", "secret": {"secretName": "c"}},
            {"name": "2", "configMap": {"name": "d"}},
            {"name": "3", "projected": {"sources": [{"secret": {"name": "e"}}, {"configMap": {"name": "f"}}]}},
            {"name": "4", "emptyDir": {}},
        ],
    }));
    let found = sources_of(&pod);
    let names: BTreeSet<String> = found
        .iter()
        .map(|it| format!("{} {}/{}", it.kind.as_str(), it.namespace, it.name))
        .collect();
    let expected = [
        "secret n/a",
        "configmap n/b",
        "secret n/c",
        "configmap n/d",
        "secret n/e",
        "configmap n/f",
    ];
    assert_eq!(names, expected.map(str::to_owned).into());
}

/// The data of Secrets in memory is never printed.
#[test]
fn secrets_are_not_printed() {
    let data = BTreeMap::from([("key".to_owned(), Bytes::from_static(b"hush"))]);
    let object = SourceObject::Present(Arc::new(data));
    assert_eq!(format!("{object:?}"), "{\"key\"}");
    let file = FileContent::Bytes(Bytes::from_static(b"hush"));
    assert_eq!(format!("{file:?}"), "4 bytes");
}
