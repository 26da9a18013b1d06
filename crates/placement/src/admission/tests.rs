use gantry_api::devices::{
    CONTAINER_DEVICES_ANNOTATION, DEVICE_CLAIMS_ANNOTATION, POD_DEVICES_ANNOTATION,
};

use super::*;

fn review(object: &Value, old: &Value) -> Value {
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u1", "operation": operation, "object": object, "oldObject": old},
    })
}

fn admit_object(question: AdmissionCheck, object: &Value) -> Value {
    response(Mode::Scheduler, question, &review(object, &Value::Null))
}

fn response(mode: Mode, question: AdmissionCheck, review: &Value) -> Value {
    let answer = answer_review(mode, question, review);
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "u1");
    answer["response"].clone()
}

fn warnings(response: &Value) -> Vec<String> {
    let all = response["warnings"].as_array().into_iter().flatten();
    all.map(|it| it.as_str().unwrap().to_owned()).collect()
}

fn object(kind: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": kind,
        "metadata": {"name": "x", "managedFields": [{"fieldsV1": {"f:x": {}}}]},
        "spec": spec,
    });
    if !matches!(kind, "DeviceClass" | "DeviceDriver" | "DevicePool") {
        object["metadata"]["namespace"] = json!("default");
    }
    object
}

fn pod(annotations: &Value, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "i"}], "schedulerName": "default-scheduler"},
    });
    for (name, value) in spec.as_object().unwrap() {
        pod["spec"][name] = value.clone();
    }
    pod
}

/// Returns a valid pod that claims devices.
fn pod_with_claims(spec: &Value) -> Value {
    let annotations = json!({
        DEVICE_CLAIMS_ANNOTATION: r#"[{"name":"gpu","claimName":"c"}]"#,
        CONTAINER_DEVICES_ANNOTATION: r#"{"main":[{"name":"gpu"}]}"#,
    });
    pod(&annotations, spec)
}

#[test]
fn reader_findings_become_warnings() {
    let class = |spec: Value| object("DeviceClass", &spec);
    let claim = |spec: Value| object("DeviceClaim", &spec);
    let table: Vec<(&str, Value, &[&str])> = vec![
        (
            "deviceMaxCount",
            class(json!({"deviceType": "gpu", "deviceMaxCount": 1})),
            &[r#"spec.deviceMaxCount: deprecated name; use "maxDeviceCount""#],
        ),
        (
            "deviceMinCount",
            class(json!({"deviceType": "gpu", "deviceMinCount": 1})),
            &[r#"spec.deviceMinCount: deprecated name; use "minDeviceCount""#],
        ),
        ("maxDeviceCount", class(json!({"deviceType": "gpu", "maxDeviceCount": 1})), &[]),
        (
            "one type under the name of many",
            class(json!({"deviceTypes": "sriov-nic"})),
            &[r#"spec.deviceTypes: deprecated name; use "deviceType""#],
        ),
        (
            "a list of one",
            class(json!({"deviceTypes": ["sriov-nic"]})),
            &[r#"spec.deviceTypes: deprecated name; use "deviceType""#],
        ),
        (
            "contstraints, loudly",
            class(json!({"deviceType": "gpu", "contstraints": "device.vendor == 'a'"})),
            &[
                r#"spec.contstraints: read as "constraints": ignoring it would open the class to the devices of every vendor; use that name"#,
            ],
        ),
        (
            "attributeMatches, for the prefix only",
            class(json!({"deviceType": "gpu", "attributeMatches": ["device.model", "numa"]})),
            &[r#"spec.attributeMatches[0]: attributes are listed without `device.`; use "model""#],
        ),
        (
            "a lone =",
            class(json!({"deviceType": "gpu", "constraints": "device.speed = '1G'"})),
            &[
                "spec.constraints: `=` is not CEL; use `==`. Until then the constraint does not compile and no device matches",
            ],
        ),
        (
            "a quantity beside a text",
            class(json!({"deviceType": "gpu", "constraints": "device.speed >= '1G'"})),
            &[],
        ),
        (
            "names of the old encoder",
            class(json!({"DeviceType": "gpu", "Driver": "d"})),
            &[
                r#"spec.Driver: deprecated name; use "driver""#,
                r#"spec.DeviceType: deprecated name; use "deviceType""#,
            ],
        ),
        ("a flat spec", claim(json!({"deviceClass": "gpu"})), &[]),
        ("count", claim(json!({"claims": [{"deviceClass": "gpu", "count": 4}]})), &[]),
        (
            "a claim set in a template",
            object(
                "DeviceClaimTemplate",
                &json!({"setClaimSpec": {"claimSpec": [{"deviceClass": "a"}]}}),
            ),
            &[r#"spec.setClaimSpec: deprecated; use "claimSpec" with "claims""#],
        ),
        (
            "the count of a pool",
            object("DevicePool", &json!({"driver": "d", "nodeName": "n", "count": 2})),
            &[],
        ),
    ];
    for (why, object, expected) in table {
        let said = admit_object(AdmissionCheck::Validate, &object);
        assert_eq!(said["allowed"], true, "{why}: {said}");
        assert_eq!(warnings(&said), expected, "{why}");
        assert!(said.get("patch").is_none() && said.get("patchType").is_none(), "{why}");
    }
    let mut driver = object("DeviceDriver", &Value::Null);
    driver["deviceTypes"] = json!(["gpu"]);
    driver.as_object_mut().unwrap().remove("spec");
    assert_eq!(warnings(&admit_object(AdmissionCheck::Validate, &driver)), Vec::<String>::new());
}

#[test]
fn unreadable_objects_are_denied_with_field_and_remedy() {
    let table = [
        (
            "two names that differ",
            object(
                "DeviceClass",
                &json!({"deviceType": "a", "deviceMaxCount": 1, "maxDeviceCount": 2}),
            ),
            "spec.deviceMaxCount: set here and at spec.maxDeviceCount with different values; keep spec.maxDeviceCount",
        ),
        (
            "two types",
            object("DeviceClass", &json!({"deviceTypes": ["a", "b"]})),
            r#"spec.deviceTypes: a class has one device type, not 2; use "deviceType"; spec.deviceType: Required value; add this field"#,
        ),
        (
            "two counts",
            object(
                "DeviceClaim",
                &json!({"claims": [{"deviceClass": "a", "count": 4, "requests": {"count": 5}}]}),
            ),
            "spec.claims[0].count: set here and at spec.claims[0].requests.count with different values; keep spec.claims[0].requests.count",
        ),
    ];
    for (why, object, expected) in table {
        let said = admit_object(AdmissionCheck::Validate, &object);
        assert_eq!(said["allowed"], false, "{why}");
        assert_eq!(said["status"]["message"], expected, "{why}");
        assert_eq!(said["status"]["code"], 422, "{why}");
    }
}

#[test]
fn stored_objects_may_change_elsewhere_and_be_deleted() {
    let bad = object("DeviceClass", &json!({"deviceTypes": ["a", "b"]}));
    let mut touched = bad.clone();
    touched["metadata"]["finalizers"] = json!([]);
    touched["status"] = json!({"conditions": []});
    let asked = |object: &Value| {
        response(Mode::Scheduler, AdmissionCheck::Validate, &review(object, &bad))["allowed"]
            == true
    };
    assert!(asked(&touched), "its content is what it was");
    let mut worse = bad.clone();
    worse["spec"]["deviceTypes"] = json!(["a", "b", "c"]);
    assert!(!asked(&worse));
    worse["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(asked(&worse), "it goes");
    let gone =
        json!({"request": {"uid": "u1", "operation": "DELETE", "object": null, "oldObject": bad}});
    assert_eq!(response(Mode::Scheduler, AdmissionCheck::Validate, &gone)["allowed"], true);
}

#[test]
fn pods_get_scheduler_or_gate_unless_the_author_chose() {
    let gate = json!({"name": SCHEDULING_GATE});
    let name = json!([{"op": "add", "path": "/spec/schedulerName", "value": "gantry"}]);
    let first = json!([{"op": "add", "path": "/spec/schedulingGates", "value": [gate]}]);
    let next = json!([{"op": "add", "path": "/spec/schedulingGates/-", "value": gate}]);
    let none = json!([]);
    let named = |name: &str| pod_with_claims(&json!({"schedulerName": name}));
    let gates = |list: Value| pod_with_claims(&json!({"schedulingGates": list}));
    let other = json!({"name": "x.example.com/y"});
    let table = [
        // why, pod, in mode scheduler, in mode gate
        ("no scheduler chosen", pod_with_claims(&json!({})), &name, &first),
        ("the name is filled in later", named(""), &name, &first),
        ("ours is named", named("gantry"), &none, &none),
        ("another is named", named("volcano"), &none, &first),
        ("it has the gate", gates(json!([gate])), &none, &none),
        ("it has another gate", gates(json!([other])), &name, &next),
        ("it has a node", pod_with_claims(&json!({"nodeName": "n1"})), &none, &none),
        ("it claims nothing", pod(&json!({"a": "b"}), &json!({})), &none, &none),
        (
            "a companion object",
            pod(&json!({POD_DEVICES_ANNOTATION: "x"}), &json!({})),
            &name,
            &first,
        ),
        (
            "what cannot be read waits too",
            pod(&json!({DEVICE_CLAIMS_ANNOTATION: "[{"}), &json!({})),
            &name,
            &first,
        ),
    ];
    for (why, pod, by_name, by_gate) in table {
        for (mode, expected) in [(Mode::Scheduler, by_name), (Mode::Gate, by_gate)] {
            let said = response(mode, AdmissionCheck::Mutate, &review(&pod, &Value::Null));
            assert_eq!(said["allowed"], true, "{why}");
            let patch = said["patch"].as_str().map_or_else(
                || json!([]),
                |it| serde_json::from_slice(&STANDARD.decode(it).unwrap()).unwrap(),
            );
            assert_eq!(patch, *expected, "{why}, {mode:?}");
            let kind = if patch == none { Value::Null } else { json!("JSONPatch") };
            assert_eq!(said["patchType"], kind, "{why}");
        }
    }
}

#[test]
fn device_claims_of_pods_are_validated() {
    let lists = |claims: &str, used: &str| {
        pod(
            &json!({DEVICE_CLAIMS_ANNOTATION: claims, CONTAINER_DEVICES_ANNOTATION: used}),
            &json!({"schedulerName": "gantry"}),
        )
    };
    let one = r#"[{"name":"gpu","claimName":"c"}]"#;
    let mut twice = pod_with_claims(&json!({}));
    twice["metadata"]["annotations"][POD_DEVICES_ANNOTATION] = json!("x");
    let claims = "metadata.annotations[devmgmtproto.k8s.io/device-claims]";
    let used = "metadata.annotations[devmgmtproto.k8s.io/container-devices]";
    let table = [
        (
            "two carriers",
            twice,
            format!(
                "metadata.annotations[{POD_DEVICES_ANNOTATION}]: set beside {claims}; a pod states its devices in one place"
            ),
        ),
        (
            "no list",
            lists("[{", "{}"),
            format!("{claims}: Invalid value: line 1 is neither JSON nor YAML"),
        ),
        (
            "no such claim",
            lists(one, r#"{"main":[{"name":"tpu"}]}"#),
            format!(
                r#"{used}.main[0].name: Not found: "tpu" names no claim of the pod and no entry of one"#
            ),
        ),
        (
            "no such container",
            lists(one, r#"{"side":[{"name":"gpu"}]}"#),
            format!(r#"{used}.side: Not found: the pod has no container "side""#),
        ),
        (
            "no source",
            lists(r#"[{"name":"gpu"}]"#, "{}"),
            format!(
                "{claims}[0]: Required value: set exactly one of claimName, claimTemplateName, claim, template"
            ),
        ),
    ];
    for (why, pod, expected) in table {
        let said = admit_object(AdmissionCheck::Validate, &pod);
        assert_eq!(said["allowed"], false, "{why}");
        let message = said["status"]["message"].as_str().unwrap();
        assert!(message.starts_with(&expected), "{why}: {message}");
        assert!(!message.contains('\n'), "{why}: it must fit into a header");
    }
    let no_scheduler = "spec.schedulerName: no scheduler allocates the pod's devices, and it will run without them; \
                  use \"gantry\", or add the scheduling gate \"devmgmtproto.k8s.io/devices\"";
    let old = r#"[{"name":"gpu","claim":{"deviceClass":"a","deviceMaxCount":2}}]"#;
    let table = [
        ("as it should be", lists(one, "{}"), vec![]),
        ("no scheduler is responsible", pod_with_claims(&json!({})), vec![no_scheduler.to_owned()]),
        (
            "another scheduler",
            pod_with_claims(&json!({"schedulerName": "x"})),
            vec![no_scheduler.to_owned()],
        ),
        (
            "an old name",
            lists(old, "{}"),
            vec![format!(
                r#"{claims}[0].claim.deviceMaxCount: deprecated name; use "maxDeviceCount""#
            )],
        ),
        (
            "claims beside an empty template",
            lists(r#"[{"name":"gpu","template":null,"claims":[{"deviceClass":"a"}]}]"#, "{}"),
            vec![format!(
                r#"{claims}[0].claims: read as "template.claims"; indent it below "template""#
            )],
        ),
        ("no devices at all", pod(&json!({}), &json!({})), vec![]),
    ];
    for (why, pod, expected) in table {
        let said = admit_object(AdmissionCheck::Validate, &pod);
        assert_eq!(said["allowed"], true, "{why}: {said}");
        assert_eq!(warnings(&said), expected, "{why}");
    }
}

#[test]
fn admin_access_needs_a_namespace_label() {
    let privileged = object("DevicePrivilegedClaim", &json!({"driver": "d"}));
    let mut of_pod = privileged.clone();
    of_pod["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
    ]);
    let plain = json!({"claimSpec": {"claims": [{"deviceClass": "a"}]}});
    let table = [
        ("a claim", privileged.clone(), false),
        ("one that is made for a pod, which is reported later", of_pod, true),
        (
            "a template",
            object("DeviceClaimTemplate", &json!({"privilegedClaimSpec": {"driver": "d"}})),
            false,
        ),
        ("a template of others", object("DeviceClaimTemplate", &plain), true),
        ("another claim", object("DeviceClaim", &json!({"deviceClass": "a"})), true),
    ];
    for (why, object, allowed) in table {
        let said = admit_object(AdmissionCheck::AdminAccess, &object);
        assert_eq!(said["allowed"], allowed, "{why}: {said}");
        assert_eq!(
            admit_object(AdmissionCheck::Validate, &object)["allowed"],
            true,
            "{why}, where the label is"
        );
    }
    let said = admit_object(AdmissionCheck::AdminAccess, &privileged);
    assert_eq!(
        said["status"]["message"],
        "metadata.namespace: Forbidden: administrator access to devices needs the label \
         devmgmtproto.k8s.io/admin-access: \"true\" on the namespace; have it set, or use a DeviceClaim"
    );
}

#[test]
fn malformed_reviews_are_denied() {
    for review in [json!({}), json!(null), json!({"request": 1}), json!([1])] {
        for question in AdmissionCheck::ALL {
            let answer = answer_review(Mode::Gate, question, &review);
            assert_eq!(answer["response"]["allowed"], false, "{review}");
        }
    }
}

#[test]
fn every_check_has_its_own_path() {
    for question in AdmissionCheck::ALL {
        assert_eq!(AdmissionCheck::from_path(question.path()), Some(question));
    }
    assert_eq!(AdmissionCheck::from_path("/devices"), None);
}

#[test]
fn webhook_configurations_cannot_block_a_cluster() {
    let client = |path: &str| json!({"url": format!("https://127.0.0.1:1{path}")});
    let all = configurations(client, FailurePolicy::Fail, "system:gantry:devices");
    for configuration in &all {
        for hook in configuration["webhooks"].as_array().unwrap() {
            let name = hook["name"].as_str().unwrap();
            let path = hook["clientConfig"]["url"].as_str().unwrap();
            // Webhooks about protected fields are called in every namespace.
            let by_writer = ["/devices/validate-protected", "/devices/validate-copied"];
            let by_writer = by_writer.iter().any(|it| path.ends_with(it));
            let spared = &hook["namespaceSelector"]["matchExpressions"][0];
            assert_eq!(spared["values"] == json!(["kube-system"]), !by_writer, "{name}");
            assert_eq!(hook["sideEffects"], json!("None"));
            let fails = hook["failurePolicy"] == "Fail";
            let narrowed = hook["matchConditions"].is_array();
            assert_eq!(
                fails, narrowed,
                "{name}: webhooks that fail closed are called for few requests"
            );
            for rule in hook["rules"].as_array().unwrap() {
                let of_pods = rule["resources"][0] == "pods";
                assert!(by_writer || of_pods == narrowed, "{name}");
                assert!(of_pods || rule["apiGroups"] == json!(["devmgmtproto.k8s.io"]), "{name}");
            }
        }
    }
    let kinds = &all[1]["webhooks"][1]["rules"][0]["resources"];
    assert_eq!(kinds.as_array().unwrap().len(), 7, "{kinds}");
    let lenient = configurations(client, FailurePolicy::Ignore, "u");
    assert_eq!(lenient[0]["webhooks"][0]["failurePolicy"], "Ignore");
}

/// Checks what only the allocator may write, in every way to write it. That the webhook is not
/// called for the allocator is the server's part, and tested there.
#[test]
fn only_the_allocator_writes_protected_fields() {
    let told = "devmgmtproto.k8s.io/device-allocations";
    let statuses = "devmgmtproto.k8s.io/device-claim-statuses";
    let opened = "devmgmtproto.k8s.io/gate-opened";
    let plain = |annotations: Value| pod(&annotations, &json!({}));
    let at = |mut pod: Value, node: &str| {
        pod["spec"]["nodeName"] = json!(node);
        pod
    };
    let carrying = || pod_with_claims(&json!({}));
    let annotated = |mut pod: Value, name: &str, value: Value| {
        pod["metadata"]["annotations"][name] = value;
        pod
    };
    let status = |kind: &str, status: Value| {
        let mut object = object(kind, &json!({}));
        object["metadata"]["finalizers"] = json!(["devmgmtproto.k8s.io/delete-protection"]);
        object["status"] = status;
        object
    };
    let freed = |mut claim: Value| {
        claim["metadata"]["finalizers"] = json!([]);
        claim
    };
    let held = json!({"allocations": [{"devicePoolName": "p"}]});
    let null = Value::Null;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "target": {"name": "n"},
        "metadata": {"name": "p", "namespace": "default", "annotations": {told: "{}"}},
    });
    let table = [
        ("a pod with allocations", plain(json!({told: "{}"})), null.clone(), told),
        ("with names of claims", plain(json!({statuses: "{}"})), null.clone(), statuses),
        ("with an open gate", plain(json!({opened: "{}"})), null.clone(), opened),
        ("a binding with allocations", binding, null.clone(), told),
        ("a node beside claims", at(carrying(), "n"), null.clone(), "spec.nodeName"),
        ("a node without claims", at(plain(json!({})), "n"), null.clone(), ""),
        ("claims without a node", carrying(), null, ""),
        ("allocations that come later", annotated(carrying(), told, json!("{}")), carrying(), told),
        (
            "allocations that go",
            at(carrying(), "n"),
            annotated(at(carrying(), "n"), told, json!("{}")),
            told,
        ),
        (
            "allocations that stay",
            annotated(annotated(carrying(), told, json!("{}")), "mine", json!("x")),
            annotated(carrying(), told, json!("{}")),
            "",
        ),
        (
            "claims that change after the pod has a node",
            annotated(at(carrying(), "n"), DEVICE_CLAIMS_ANNOTATION, json!("[]")),
            at(carrying(), "n"),
            DEVICE_CLAIMS_ANNOTATION,
        ),
        (
            "claims that change before",
            annotated(carrying(), DEVICE_CLAIMS_ANNOTATION, json!("[]")),
            carrying(),
            "",
        ),
        (
            "an allocation that the allocator did not make",
            status("DeviceClaim", held.clone()),
            status("DeviceClaim", json!({})),
            "status.allocations",
        ),
        (
            "consumers that the allocator did not add",
            status("DevicePrivilegedClaim", json!({"reservedFor": [{"name": "p", "uid": "u"}]})),
            status("DevicePrivilegedClaim", json!({"reservedFor": []})),
            "status.reservedFor",
        ),
        (
            "what a driver says",
            status("DeviceClaim", json!({"deviceStatuses": [{"devicePoolName": "p"}]})),
            status("DeviceClaim", json!({"allocations": []})),
            "",
        ),
        (
            "a ledger without its entries",
            status("DevicePool", json!({"availableDevices": 2})),
            status("DevicePool", held.clone()),
            "status.allocations",
        ),
        (
            "what a driver counts",
            status("DevicePool", json!({"availableDevices": 2})),
            status("DevicePool", json!({"availableDevices": 1})),
            "",
        ),
        (
            "a finalizer removed from a claim with devices",
            freed(status("DeviceClaim", held.clone())),
            status("DeviceClaim", held),
            "metadata.finalizers",
        ),
        (
            "a finalizer removed from a claim without devices",
            freed(status("DeviceClaim", json!({}))),
            status("DeviceClaim", json!({})),
            "",
        ),
    ];
    for (why, object, old, expected) in table {
        let said = response(Mode::Scheduler, AdmissionCheck::Protected, &review(&object, &old));
        assert_eq!(said["allowed"], expected.is_empty(), "{why}: {said}");
        if !expected.is_empty() {
            assert_eq!(said["status"]["code"], 403, "{why}");
            let message = said["status"]["message"].as_str().unwrap();
            assert!(
                message.contains(expected) && message.contains("Forbidden"),
                "{why}: {message}"
            );
        }
    }
}

#[test]
fn config_map_copy_requires_read_access() {
    let config = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "conf"}]);
    let own = json!([{"apiVersion": "ex.com/v1", "kind": "Foo", "name": "conf"}]);
    let table = [
        (
            object("DeviceClaim", &json!({"claims": [{"configs": config}]})),
            "spec.claims[0].configs[0]",
        ),
        (
            object("DeviceClaim", &json!({"claims": [{"oneOf": [{}, {"configs": config}]}]})),
            "spec.claims[0].oneOf[1].configs[0]",
        ),
        (object("DeviceClaim", &json!({"configs": config})), "spec.configs[0]"),
        (
            object("DeviceClaimTemplate", &json!({"claimSpec": {"claims": [{"configs": config}]}})),
            "spec.claimSpec.claims[0].configs[0]",
        ),
        (object("DeviceClaim", &json!({"claims": [{"configs": own}]})), ""),
        (object("DeviceClaim", &json!({"claims": [{}]})), ""),
    ];
    for (object, path) in table {
        let said = admit_object(AdmissionCheck::ConfigMapAccess, &object);
        assert_eq!(said["allowed"], path.is_empty(), "{object}: {said}");
        if !path.is_empty() {
            let message = said["status"]["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("{path}: Forbidden: ConfigMap default/conf")));
        }
        let again =
            response(Mode::Scheduler, AdmissionCheck::ConfigMapAccess, &review(&object, &object));
        assert_eq!(again["allowed"], true, "what is stored stays");
    }
}
