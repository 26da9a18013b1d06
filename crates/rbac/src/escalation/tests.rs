use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::*;
use crate::attributes::Attributes;

fn read(rules: &Value) -> Vec<Rule> {
    let rules = rules.as_array().unwrap().iter();
    rules.map(|rule| Rule::deserialize(rule).unwrap()).collect()
}

/// `group resources verbs [names]`, or `/path verbs`; parts are separated by commas, and a group
/// that is empty is written as a dash.
fn brief(text: &str) -> Value {
    let list = |text: &str| text.split(',').map(|it| it.replace('-', "")).collect::<Vec<_>>();
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        [path, verbs] => json!({ "nonResourceURLs": list(path), "verbs": list(verbs) }),
        [group, resources, verbs] => {
            json!({ "apiGroups": list(group), "resources": list(resources), "verbs": list(verbs) })
        }
        [group, resources, verbs, names] => json!({
            "apiGroups": list(group), "resources": list(resources), "verbs": list(verbs),
            "resourceNames": list(names),
        }),
        _ => panic!("{text}"),
    }
}

#[test]
fn only_what_is_held_can_be_granted() {
    let table = [
        // held, granted, missing
        ("- pods get", "- pods get", vec![]),
        ("- pods get,list", "- pods list", vec![]),
        ("- pods *", "- pods list,get", vec![]),
        ("- pods get", "- pods *", vec!["- pods *"]),
        ("* * *", "a b c d", vec![]),
        ("* * *", "/x get", vec!["/x get"]),
        ("/* get", "/x get", vec![]),
        ("/x get", "/x* get", vec!["/x* get"]),
        ("/x/* get", "/x get", vec!["/x get"]),
        ("- pods get a", "- pods get", vec!["- pods get"]),
        ("- pods get a", "- pods get a", vec![]),
        ("- pods get a", "- pods get a,b", vec!["- pods get b"]),
        ("- pods get", "- pods get a", vec![]),
        ("- */log get", "- pods/log get", vec![]),
        ("- */log get", "- */log get", vec![]),
        ("- pods/log get", "- */log get", vec!["- */log get"]),
        ("- */log get", "- pods get", vec!["- pods get"]),
        ("- * get", "- pods/log get", vec![]),
        (
            "- pods get",
            "-,a pods,nodes get,list",
            vec![
                "- pods list",
                "- nodes get",
                "- nodes list",
                "a pods get",
                "a pods list",
                "a nodes get",
                "a nodes list",
            ],
        ),
        ("- pods get", "- */* get", vec!["- */* get"]),
    ];
    for (held, granted, expected) in table {
        let found = missing(&read(&json!([brief(held)])), &read(&json!([brief(granted)]))).unwrap();
        let expected: Vec<Value> = expected.into_iter().map(brief).collect();
        assert_eq!(found, read(&Value::Array(expected)), "{held} grants {granted}");
    }
}

#[test]
fn refusals_list_what_is_missing_by_resource() {
    let mut policy = Policy::default();
    policy.set_cluster_role("some", &json!({ "rules": [brief("- pods get")] }));
    policy.set_cluster_binding(
        "some",
        &json!({
            "roleRef": { "kind": "ClusterRole", "name": "some" },
            "subjects": [{ "kind": "User", "name": "bob" }],
        }),
    );
    let groups = ["devs".to_owned(), "system:authenticated".to_owned()];
    let bob = User { name: "bob", groups: &groups };
    let granted = read(&json!([
        brief("- pods get,list,watch"),
        brief("- nodes list a,b"),
        brief("- pods list,delete"),
        brief("/b,/a get,post"),
    ]));
    let expected = r#"user "bob" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["nodes"], ResourceNames:["a"], Verbs:["list"]}
{APIGroups:[""], Resources:["nodes"], ResourceNames:["b"], Verbs:["list"]}
{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch" "list" "delete"]}
{NonResourceURLs:["/a"], Verbs:["get"]}
{NonResourceURLs:["/a"], Verbs:["post"]}
{NonResourceURLs:["/b"], Verbs:["get"]}
{NonResourceURLs:["/b"], Verbs:["post"]}"#;
    assert_eq!(policy.escalation_error(bob, "", "roles", &granted).as_deref(), Some(expected));
    assert_eq!(
        policy.escalation_error(bob, "x", "roles", &read(&json!([brief("- pods get")]))),
        None
    );
    policy.remove_cluster_role("some");
    let words =
        policy.escalation_error(bob, "", "roles", &read(&json!([brief("- pods get")]))).unwrap();
    let end = r#"; resolution errors: [roles.rbac.authorization.k8s.io "some" not found]"#;
    assert!(words.ends_with(end), "{words}");
}

#[test]
fn a_grant_of_billions_is_refused_at_once() {
    let many: Vec<String> = (0..3_000).map(|it| format!("x{it}")).collect();
    let rule = json!({ "apiGroups": many, "resources": many, "verbs": many });
    let granted = read(&json!([rule]));
    assert_eq!(missing(&read(&json!([brief("- pods get")])), &granted), Err(TooManyPermissions));
    let refusal =
        Policy::default().escalation_error(User { name: "b", groups: &[] }, "", "", &granted);
    assert!(
        refusal.unwrap().ends_with("more than 100000 permissions, which are too many to compare")
    );
    assert!(covers(&read(&json!([brief("* * *")])), &granted), "but who holds all may");
}

fn some(words: &[&str]) -> impl Strategy<Value = Vec<String>> + use<> {
    let words: Vec<String> = words.iter().map(|&it| it.to_owned()).collect();
    prop::collection::vec(prop::sample::select(words), 0..3)
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let rule = (
        some(&["get", "list", "*"]),
        some(&["", "a", "*"]),
        some(&["p", "p/l", "*/l", "q", "*"]),
        some(&["n", "m"]),
        some(&["/", "/a", "/a/*", "*"]),
    );
    rule.prop_map(|(verbs, api_groups, resources, resource_names, paths)| Rule {
        verbs,
        api_groups,
        resources,
        resource_names,
        non_resource_urls: paths,
    })
}

/// Generates held rules, and similar rules that are covered now and then: the same with some parts
/// taken from elsewhere.
fn any_two() -> impl Strategy<Value = (Vec<Rule>, Vec<Rule>)> {
    let change = (any::<prop::sample::Index>(), any_rule(), prop::array::uniform5(any::<bool>()));
    let changes = prop::collection::vec(change, 0..3);
    (prop::collection::vec(any_rule(), 1..3), changes).prop_map(|(owner, changes)| {
        let other = changes.into_iter().map(|(place, new, parts)| {
            let mut rule = place.get(&owner).clone();
            let [verbs, groups, resources, names, paths] = parts;
            for (changed, field, new) in [
                (verbs, &mut rule.verbs, new.verbs),
                (groups, &mut rule.api_groups, new.api_groups),
                (resources, &mut rule.resources, new.resources),
                (names, &mut rule.resource_names, new.resource_names),
                (paths, &mut rule.non_resource_urls, new.non_resource_urls),
            ] {
                if changed {
                    *field = new;
                }
            }
            rule
        });
        let other = other.collect();
        (owner, other)
    })
}

fn questions() -> Vec<Attributes> {
    let mut questions = Vec::new();
    for verb in ["get", "list", "other"] {
        for group in ["", "a", "b"] {
            for (resource, part) in [("p", ""), ("p", "l"), ("q", "l"), ("q", ""), ("r", "s")] {
                for name in ["", "n", "m", "o"] {
                    let asked = Attributes::resource(verb, group, resource);
                    questions.push(asked.with_subresource(part).with_name(name));
                }
            }
        }
        let paths = ["/", "/a", "/a/", "/a/b", "/c"];
        questions.extend(paths.map(|path| Attributes::path(verb, path)));
    }
    questions
}

proptest! {
    /// A user who may grant rules may do everything they allow: no grant gives a user more
    /// permissions.
    #[test]
    fn a_grant_never_exceeds_what_is_held((owner, other) in any_two()) {
        if covers(&owner, &other) {
            for asked in questions() {
                let allows = |rules: &[Rule]| rules.iter().any(|rule| rule.allows(&asked));
                prop_assert!(!allows(&other) || allows(&owner), "{asked:?}");
            }
        }
    }

    /// The missing permissions are exactly those that have to be added.
    #[test]
    fn holding_the_missing_rules_is_enough((owner, other) in any_two()) {
        let lacking = missing(&owner, &other).unwrap();
        for rule in &lacking {
            prop_assert!(!owner.iter().any(|own| own.covers(rule)));
        }
        let all = [owner, lacking].concat();
        prop_assert!(covers(&all, &other));
    }

    /// Checking whole rules first is only an optimization.
    #[test]
    fn checking_whole_rules_first_changes_nothing((owner, other) in any_two()) {
        let slowly: Vec<Rule> = other
            .iter()
            .flat_map(Rule::breakdown)
            .filter(|part| !owner.iter().any(|own| own.covers(part)))
            .collect();
        prop_assert_eq!(missing(&owner, &other).unwrap(), slowly);
    }
}
