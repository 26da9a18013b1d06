use proptest::prelude::*;
use serde_json::json;

use super::*;

fn role(verb: &str, resource: &str) -> Value {
    json!({ "rules": [{ "verbs": [verb], "apiGroups": [""], "resources": [resource] }] })
}

fn binding(kind: &str, role: &str, subjects: &[(&str, &str, &str)]) -> Value {
    let subjects: Vec<Value> = subjects
        .iter()
        .map(
            |(kind, name, namespace)| json!({ "kind": kind, "name": name, "namespace": namespace }),
        )
        .collect();
    json!({ "roleRef": { "kind": kind, "name": role }, "subjects": subjects })
}

fn groups(names: &[&str]) -> Vec<String> {
    names.iter().map(|&it| it.to_owned()).collect()
}

/// The case, the user, their groups, the request, and the decision.
type Row<'a> = (&'a str, &'a str, &'a [&'a str], Attributes, bool, String);

#[test]
fn reasons_name_binding_role_and_subject() {
    let mut policy = Policy::default();
    policy.set_cluster_role("reader", &role("get", "pods"));
    policy.set_role("a", "local", &role("list", "pods"));
    let subjects = [("Group", "devs", ""), ("User", "bob", ""), ("ServiceAccount", "robot", "b")];
    policy.set_cluster_binding("everywhere", &binding("ClusterRole", "reader", &subjects));
    let subjects = [("ServiceAccount", "robot", ""), ("User", "eve", "")];
    policy.set_binding("a", "here", &binding("Role", "local", &subjects));
    policy.set_binding("a", "lost", &binding("Role", "gone", &subjects[1..]));
    policy.set_cluster_binding("strange", &binding("Thing", "x", &subjects[1..]));
    policy.set_cluster_binding("stray", &binding("ClusterRole", "reader", &subjects[..1]));

    let (get, list) =
        (Attributes::resource("get", "", "pods"), Attributes::resource("list", "", "pods"));
    let everywhere =
        r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "reader" to "#;
    let here = r#"RBAC: allowed by RoleBinding "here/a" of Role "local" to "#;
    let missing = r#"RBAC: [unsupported role reference kind: "Thing", role.rbac.authorization.k8s.io "gone" not found]"#;
    let robot = |home: &str| format!("system:serviceaccount:{home}:robot");
    let (of_a, of_b) = (robot("a"), robot("b"));
    let table: Vec<Row<'_>> = vec![
        (
            "the first subject is named",
            "bob",
            &["devs"],
            get.clone(),
            true,
            format!("{everywhere}Group \"devs\""),
        ),
        (
            "a user",
            "bob",
            &[],
            get.clone().in_namespace("x"),
            true,
            format!("{everywhere}User \"bob\""),
        ),
        (
            "an account",
            &of_b,
            &[],
            get.clone(),
            true,
            format!("{everywhere}ServiceAccount \"robot/b\""),
        ),
        (
            "a binding's own account",
            &of_a,
            &[],
            list.clone().in_namespace("a"),
            true,
            format!("{here}ServiceAccount \"robot/a\""),
        ),
        (
            "accounts of other namespaces",
            &of_b,
            &[],
            list.clone().in_namespace("a"),
            false,
            String::new(),
        ),
        (
            "an account without a namespace is nobody in the cluster",
            &of_a,
            &[],
            get.clone(),
            false,
            String::new(),
        ),
        (
            "a role of a namespace stays there",
            "eve",
            &[],
            list.clone().in_namespace("b"),
            false,
            "RBAC: unsupported role reference kind: \"Thing\"".to_owned(),
        ),
        (
            "errors do not hide what is allowed",
            "eve",
            &[],
            list.in_namespace("a"),
            true,
            format!("{here}User \"eve\""),
        ),
        (
            "errors are reported",
            "eve",
            &[],
            get.clone().in_namespace("a"),
            false,
            missing.to_owned(),
        ),
        ("nobody", "", &[], get.clone().in_namespace("a"), false, String::new()),
        (
            "administrators need no role",
            "",
            &["x", "system:masters"],
            get.with_verb("anything"),
            true,
            String::new(),
        ),
    ];
    for (why, name, member, asked, allowed, reason) in table {
        let user = User { name, groups: &groups(member) };
        assert_eq!(policy.decide(user, &asked), Decision { allowed, reason }, "{why}");
    }
}

#[test]
fn effective_rules_come_binding_by_binding() {
    let mut policy = Policy::default();
    policy.set_cluster_role("b", &role("b", "pods"));
    policy.set_role("x", "a", &role("a", "pods"));
    let bob = [("User", "bob", "")];
    policy.set_cluster_binding("2", &binding("ClusterRole", "b", &bob));
    policy.set_cluster_binding("1", &binding("ClusterRole", "gone", &bob));
    policy.set_cluster_binding("0", &binding("ClusterRole", "gone", &bob));
    policy.set_binding("x", "1", &binding("Role", "a", &bob));
    let user = User { name: "bob", groups: &[] };
    let held = policy.effective_rules(user, "x");
    let verbs: Vec<&String> = held.rules.iter().flat_map(|rule| &rule.verbs).collect();
    assert_eq!(verbs, ["b", "a"]);
    assert_eq!(held.errors, "clusterrole.rbac.authorization.k8s.io \"gone\" not found");
    assert_eq!(policy.effective_rules(user, "").rules.len(), 1);
    let errors = policy.effective_rules_of_granter(user, "", "rolebindings").errors;
    assert_eq!(errors, "rolebindings.rbac.authorization.k8s.io \"gone\" not found");
}

/// A change of the policy, over few names so that changes collide.
#[derive(Clone, Debug)]
enum Step {
    SetRole(u8, u8, Value),
    RemoveRole(u8, u8),
    SetBinding(u8, u8, Value),
    RemoveBinding(u8, u8),
}

fn any_role() -> impl Strategy<Value = Value> {
    let verb = prop::sample::select(vec!["get", "list", "*"]);
    let resource = prop::sample::select(vec!["pods", "pods/log", "*", "*/log"]);
    let name = prop::sample::select(vec![json!([]), json!(["n"]), Value::Null]);
    let one = (verb, resource, name).prop_map(|(verb, resource, names)| {
        json!({
            "verbs": [verb], "apiGroups": [""], "resources": [resource], "resourceNames": names,
        })
    });
    prop::collection::vec(one, 0..3).prop_map(|rules| json!({ "rules": rules }))
}

fn any_binding() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec!["Role", "ClusterRole"]);
    let subject = (
        prop::sample::select(vec!["User", "Group", "ServiceAccount"]),
        prop::sample::select(vec!["a", "b"]),
        prop::sample::select(vec!["", "1"]),
    );
    (kind, 0..3_u8, prop::collection::vec(subject, 0..3))
        .prop_map(|(kind, role, subjects)| binding(kind, &role.to_string(), &subjects))
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_u8, 0..3_u8, any_role()).prop_map(|(a, b, c)| Step::SetRole(a, b, c)),
        1 => (0..3_u8, 0..3_u8).prop_map(|(a, b)| Step::RemoveRole(a, b)),
        4 => (0..3_u8, 0..3_u8, any_binding()).prop_map(|(a, b, c)| Step::SetBinding(a, b, c)),
        1 => (0..3_u8, 0..3_u8).prop_map(|(a, b)| Step::RemoveBinding(a, b)),
    ]
}

/// Roles and bindings as plain lists: namespace `0` is the cluster.
#[derive(Default)]
struct ReferencePolicy {
    roles: BTreeMap<(u8, u8), Value>,
    bindings: BTreeMap<(u8, u8), Value>,
}

impl ReferencePolicy {
    /// The semantics of Kubernetes, implemented without any index.
    fn allowed(&self, user: User<'_>, asked: &Attributes, namespace: u8) -> bool {
        self.bindings.iter().any(|((home, _), binding)| {
            let binding = Binding::read(binding);
            let local = if *home == 0 { String::new() } else { home.to_string() };
            let place = match binding.role_ref.kind.as_str() {
                "ClusterRole" => 0,
                // A ClusterRoleBinding cannot name a Role.
                _ if *home == 0 => return false,
                _ => *home,
            };
            (*home == 0 || *home == namespace)
                && binding.subject(user, &local).is_some()
                && self
                    .roles
                    .get(&(place, binding.role_ref.name.parse().unwrap()))
                    .is_some_and(|role| rules(role).iter().any(|rule| rule.allows(asked)))
        })
    }
}

proptest! {
    /// However roles and bindings were added and removed, the index agrees with the lists, and
    /// gives a reason whenever it allows a request.
    #[test]
    fn the_index_agrees_with_the_lists(steps in prop::collection::vec(any_step(), 1..40)) {
        let (mut policy, mut lists) = (Policy::default(), ReferencePolicy::default());
        for step in steps {
            match step {
                Step::SetRole(home, name, role) => {
                    match home {
                        0 => policy.set_cluster_role(&name.to_string(), &role),
                        _ => policy.set_role(&home.to_string(), &name.to_string(), &role),
                    }
                    lists.roles.insert((home, name), role);
                }
                Step::RemoveRole(home, name) => {
                    match home {
                        0 => policy.remove_cluster_role(&name.to_string()),
                        _ => policy.remove_role(&home.to_string(), &name.to_string()),
                    }
                    lists.roles.remove(&(home, name));
                }
                Step::SetBinding(home, name, binding) => {
                    match home {
                        0 => policy.set_cluster_binding(&name.to_string(), &binding),
                        _ => policy.set_binding(&home.to_string(), &name.to_string(), &binding),
                    }
                    lists.bindings.insert((home, name), binding);
                }
                Step::RemoveBinding(home, name) => {
                    match home {
                        0 => policy.remove_cluster_binding(&name.to_string()),
                        _ => policy.remove_binding(&home.to_string(), &name.to_string()),
                    }
                    lists.bindings.remove(&(home, name));
                }
            }
        }
        let users = ["a", "b", "system:serviceaccount:1:a", "system:serviceaccount:2:b"];
        let member = [groups(&[]), groups(&["a"]), groups(&["b", "a"])];
        for name in users {
            for groups in &member {
                let user = User { name, groups };
                for namespace in 0..3_u8 {
                    for asked in [
                        Attributes::resource("get", "", "pods"),
                        Attributes::resource("list", "", "pods").with_subresource("log").with_name("n"),
                    ] {
                        let home = if namespace == 0 { String::new() } else { namespace.to_string() };
                        let asked = asked.in_namespace(&home);
                        let decision = policy.decide(user, &asked);
                        prop_assert_eq!(decision.allowed, lists.allowed(user, &asked, namespace));
                        let reasons = policy.reasons(user, &asked);
                        match decision.allowed {
                            true => prop_assert_eq!(reasons.first(), Some(&decision.reason)),
                            false => prop_assert!(reasons.is_empty()),
                        }
                    }
                }
            }
        }
    }

    /// A policy from which everything was removed again is empty.
    #[test]
    fn nothing_is_left_behind(bindings in prop::collection::vec(any_binding(), 0..6)) {
        let mut policy = Policy::default();
        for (place, binding) in bindings.iter().enumerate() {
            policy.set_binding("1", &place.to_string(), binding);
            policy.set_cluster_binding(&place.to_string(), binding);
        }
        for place in 0..bindings.len() {
            policy.remove_binding("1", &place.to_string());
            policy.remove_cluster_binding(&place.to_string());
        }
        prop_assert!(policy.bindings.is_empty());
        prop_assert!(policy.cluster_bindings.by_subject.is_empty());
    }
}
