use super::*;

fn pod(spec: &Value) -> Value {
    json!({ "metadata": { "namespace": "n" }, "spec": spec })
}

#[test]
fn a_pod_needs_an_existing_account() {
    let mut object = pod(&json!({ "serviceAccountName": "s" }));
    let refused = service_account(&mut object, None, "abcde").unwrap_err();
    let said = "error looking up service account n/s: serviceaccount \"s\" not found";
    assert_eq!(refused.to_string(), said);
}

#[test]
fn a_token_is_mounted_unless_pod_or_account_decline() {
    let table = [
        (None, None, true),
        (None, Some(false), false),
        (Some(true), Some(false), true),
        (Some(false), None, false),
    ];
    for (wanted, offered, expected) in table {
        let mut object = pod(&json!({
            "automountServiceAccountToken": wanted, "containers": [{ "name": "c" }],
        }));
        let account = json!({ "automountServiceAccountToken": offered,
            "imagePullSecrets": [{ "name": "p" }] });
        service_account(&mut object, Some(&account), "abcde").unwrap();
        let mounted = !list(&object, "spec.volumes").is_empty();
        assert_eq!(mounted, expected, "{wanted:?} {offered:?}");
        assert_eq!(at(&object, "spec.imagePullSecrets"), &json!([{ "name": "p" }]));
        assert_eq!(text(&object, "spec.serviceAccount"), "default");
    }
}

#[test]
fn an_explicit_token_mount_is_kept() {
    let own = json!([{ "name": "mine", "mountPath": TOKEN_MOUNT_PATH }]);
    let mut object = pod(&json!({ "containers": [{ "name": "c", "volumeMounts": own }] }));
    service_account(&mut object, Some(&json!({})), "abcde").unwrap();
    assert_eq!(list(&object, "spec.volumes"), [] as [Value; 0]);
    assert_eq!(object["spec"]["containers"][0]["volumeMounts"], own);
}

#[test]
fn admission_is_idempotent() {
    let mut object = pod(&json!({ "containers": [{ "name": "c" }] }));
    let all = |object: &mut Value, suffix: &str| {
        service_account(object, Some(&json!({})), suffix).unwrap();
        priority(object, None).unwrap();
        default_tolerations(object);
    };
    all(&mut object, "aaaaa");
    let once = object.clone();
    all(&mut object, "bbbbb");
    assert_eq!(object, once);
}

#[test]
fn pod_priority_comes_from_its_class() {
    let class = json!({ "metadata": { "name": "c" }, "value": 7, "preemptionPolicy": "Never" });
    let name = "system-cluster-critical";
    let table = [
        ("no class", json!({}), None, Ok((0, "PreemptLowerPriority"))),
        ("a default class", json!({}), Some(&class), Ok((7, "Never"))),
        ("the same number", json!({ "priority": 7 }), Some(&class), Ok((7, "Never"))),
        (
            "a system class",
            json!({ "priorityClassName": name }),
            None,
            Ok((2_000_000_000, "PreemptLowerPriority")),
        ),
        (
            "an unknown class",
            json!({ "priorityClassName": "x" }),
            None,
            Err("no PriorityClass with name x was found"),
        ),
        (
            "another number",
            json!({ "priority": 8 }),
            Some(&class),
            Err("the integer value of priority (8) must not be provided in pod spec; priority \
                 admission controller computed 7 from the given PriorityClass name"),
        ),
        (
            "another policy",
            json!({ "preemptionPolicy": "Some" }),
            None,
            Err("the string value of PreemptionPolicy (Some) must not be provided in pod spec; \
                 priority admission controller computed PreemptLowerPriority from the given \
                 PriorityClass name"),
        ),
    ];
    for (why, spec, class, expected) in table {
        let mut object = pod(&spec);
        let result = priority(&mut object, class).map_err(|error| error.to_string());
        let found = (
            int(&object, "spec.priority").unwrap_or_default(),
            text(&object, "spec.preemptionPolicy"),
        );
        assert_eq!(result.map(|()| found), expected.map_err(str::to_owned), "{why}");
    }
}

#[test]
fn covering_tolerations_are_kept() {
    let table = [
        (json!([]), 2),
        (json!([{ "operator": "Exists" }]), 1),
        (json!([{ "key": "node.kubernetes.io/unreachable", "operator": "Exists" }]), 2),
        (json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }]), 3),
    ];
    for (own, expected) in table {
        let mut object = pod(&json!({ "tolerations": own }));
        default_tolerations(&mut object);
        assert_eq!(list(&object, "spec.tolerations").len(), expected, "{own}");
    }
}

#[test]
fn the_youngest_default_class_wins() {
    let class = |name: &str, time: &str, mark: &str| {
        json!({ "metadata": { "name": name, "creationTimestamp": time,
            "annotations": { "storageclass.kubernetes.io/is-default-class": mark } } })
    };
    let classes = [
        class("old", "2024-01-01T00:00:00Z", "true"),
        class("b", "2024-01-02T00:00:00Z", "true"),
        class("a", "2024-01-02T00:00:00Z", "true"),
        class("no", "2024-01-03T00:00:00Z", "false"),
    ];
    for (spec, expected) in [
        (json!({}), json!("a")),
        (json!({ "storageClassName": "" }), json!("")),
        (json!({ "storageClassName": "x" }), json!("x")),
    ] {
        let mut claim = json!({ "spec": spec });
        default_storage_class(&mut claim, classes.iter());
        assert_eq!(claim["spec"]["storageClassName"], expected);
    }
}

#[test]
fn taints_and_protection_added_once() {
    let mut node = json!({});
    taint_new_node(&mut node);
    taint_new_node(&mut node);
    assert_eq!(list(&node, "spec.taints").len(), 1);
    let mut claim = json!({});
    protect_storage(&mut claim, "persistentvolumeclaims");
    protect_storage(&mut claim, "persistentvolumeclaims");
    let expected = json!(["kubernetes.io/pvc-protection"]);
    assert_eq!(at(&claim, "metadata.finalizers"), &expected);
}

#[test]
fn an_update_keeps_the_priority_it_does_not_mention() {
    let old = pod(&json!({ "priority": 7, "preemptionPolicy": "Never" }));
    let table = [
        (json!({}), json!({ "priority": 7, "preemptionPolicy": "Never" })),
        (json!({ "priority": null }), json!({ "priority": 7, "preemptionPolicy": "Never" })),
        // Left for validation to reject.
        (json!({ "priority": 8 }), json!({ "priority": 8, "preemptionPolicy": "Never" })),
    ];
    for (new, expected) in table {
        let mut new = pod(&new);
        preserve_priority(&mut new, &old);
        assert_eq!(new, pod(&expected));
    }
    let mut new = pod(&json!({}));
    preserve_priority(&mut new, &pod(&json!({})));
    assert_eq!(new, pod(&json!({})));
}

#[test]
fn there_is_one_default_class() {
    let class = |name: &str, default: bool, value: i64| json!({ "metadata": { "name": name }, "globalDefault": default, "value": value });
    let stored = [class("high", true, 9), class("low", true, 1), class("plain", false, 0)];
    let words = "PriorityClass low is already marked as default. Only one default can exist";
    let table = [
        (class("new", true, 5), true, Some(words)),
        (class("new", false, 5), true, None),
        (class("low", true, 1), false, None),
        (class("low", true, 1), true, Some(words)),
        (class("plain", true, 0), false, Some(words)),
    ];
    for (class, is_new, expected) in table {
        let said = default_class_conflict(&class, is_new, stored.iter());
        assert_eq!(said.as_deref(), expected, "{class}");
    }
    assert_eq!(default_class_conflict(&class("new", true, 5), true, stored[2..].iter()), None);
}
