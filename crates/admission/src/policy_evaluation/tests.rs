use super::*;
use crate::authorizer::{AccessCheck, Decision};
use crate::request::{Operation, ParamKind};
use proptest::prelude::*;

/// A world with one namespace, some parameters, and a caller who may only `get`.
#[derive(Debug, Default)]
struct TestWorld {
    params: Vec<Json>,
    equivalents: Vec<ResourceView>,
}

#[derive(Debug)]
struct GetOnlyAuthorizer;

impl Authorizer for GetOnlyAuthorizer {
    fn authorize(&self, _: &Json, check: &AccessCheck) -> Decision {
        let verb = match check {
            AccessCheck::Path { verb, .. } | AccessCheck::Resource { verb, .. } => verb,
        };
        Decision { allowed: verb == "get", reason: format!("asked for {verb}"), error: None }
    }
}

impl AdmissionContext for TestWorld {
    fn namespace(&self, name: &str) -> Option<Json> {
        (name == "here").then(|| json!({ "metadata": { "name": "here", "labels": { "l": "h" } } }))
    }

    fn equivalents(&self) -> Vec<ResourceView> {
        self.equivalents.clone()
    }

    fn convert(&self, object: &Json, view: &ResourceView) -> Option<Json> {
        let mut object = object.clone();
        object["apiVersion"] = json!(view.version);
        Some(object)
    }

    fn param_scope(&self, kind: &ParamKind) -> Option<ParamScope> {
        (kind.kind == "P").then_some(ParamScope::Namespaced)
    }

    fn params(&self, _: &ParamKind, namespace: &str, name: Option<&str>) -> Vec<Json> {
        let own = self.params.iter().filter(|it| it["metadata"]["namespace"] == namespace);
        own.filter(|it| name.is_none_or(|name| it["metadata"]["name"] == name)).cloned().collect()
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(GetOnlyAuthorizer)
    }
}

fn view(version: &str) -> ResourceView {
    ResourceView {
        group: String::new(),
        version: version.to_owned(),
        resource: "things".to_owned(),
        kind_group: String::new(),
        kind_version: version.to_owned(),
        kind: "Thing".to_owned(),
    }
}

fn compile_policy(spec: &Json, binding: &Json) -> Vec<(Arc<Policy>, Vec<Arc<Binding>>)> {
    let mut whole = json!({ "matchConstraints": { "resourceRules": [{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
    }] } });
    let mut bound = json!({ "policyName": "p", "validationActions": ["Deny"] });
    for (place, more) in [(&mut whole, spec), (&mut bound, binding)] {
        for (name, value) in more.as_object().unwrap() {
            place[name] = value.clone();
        }
    }
    let policy = Policy::compile(&json!({ "metadata": { "name": "p" }, "spec": whole }));
    let binding = Binding::read(&json!({ "metadata": { "name": "b" }, "spec": bound }));
    vec![(Arc::new(policy), vec![Arc::new(binding)])]
}

fn evaluate_one(spec: &Json, binding: &Json, world: &TestWorld, object: &Json) -> PolicyDecision {
    let (view, user) = (view("v1"), json!({ "username": "u" }));
    let request = Request {
        operation: Operation::Create,
        view: &view,
        subresource: "",
        name: "n",
        namespace: "here",
        user: &user,
        dry_run: false,
        options: &Json::Null,
        object: Some(object),
        old: None,
    };
    evaluate_policies(&compile_policy(spec, binding), &request, world)
}

fn denial_of(outcome: &PolicyDecision) -> Option<&str> {
    let message = outcome.denied.as_ref()?.message.as_str();
    message.strip_prefix("ValidatingAdmissionPolicy 'p' ").and_then(|rest| {
        rest.strip_prefix("with binding 'b' denied request: ")
            .or_else(|| rest.strip_prefix("denied request: "))
    })
}

#[test]
fn policies_deny_with_a_message() {
    let rule = |text: &str| json!({ "validations": [{ "expression": text }] });
    let param = json!({ "metadata": { "name": "x", "namespace": "here" }, "a": 1 });
    let world = TestWorld { params: vec![param], ..TestWorld::default() };
    let kind = json!({ "apiVersion": "v1", "kind": "P" });
    let reference =
        |name: &str| json!({ "paramRef": { "name": name, "parameterNotFoundAction": "Deny" } });
    let with = |mut spec: Json, name: &str, value: Json| {
        spec[name] = value;
        spec
    };
    let none = json!({});
    let table: [(&str, Json, Json, Option<&str>); 14] = [
        ("a true rule", rule("object.a == 1"), none.clone(), None),
        (
            "a false rule",
            rule("object.a == 2"),
            none.clone(),
            Some("failed expression: object.a == 2"),
        ),
        (
            "an error",
            rule("object.b == 2"),
            none.clone(),
            Some("expression 'object.b == 2' resulted in error: no such key: b"),
        ),
        (
            "an ignored error",
            with(rule("object.b == 2"), "failurePolicy", json!("Ignore")),
            none.clone(),
            None,
        ),
        (
            "a wrong expression that is stored",
            rule("object."),
            none.clone(),
            Some(
                "compilation error: compilation failed: ERROR: <input>:1:8: Syntax error: no viable \
                 alternative at input '.'\n | object.\n | .......^",
            ),
        ),
        ("the namespace", rule("namespaceObject.metadata.labels.l == 'h'"), none.clone(), None),
        ("a right", rule("authorizer.requestResource.check('get').allowed()"), none.clone(), None),
        (
            "a right that is not given",
            rule("authorizer.path('/x').check('post').allowed()"),
            none.clone(),
            Some("failed expression: authorizer.path('/x').check('post').allowed()"),
        ),
        (
            "the reason of a decision",
            rule("authorizer.requestResource.check('get').reason() == 'asked for get'"),
            none.clone(),
            None,
        ),
        (
            "a parameter",
            with(rule("params.a == object.a"), "paramKind", kind.clone()),
            reference("x"),
            None,
        ),
        (
            "no parameter",
            with(rule("params.a == 1"), "paramKind", kind),
            reference("y"),
            Some(
                "failed to configure binding: no params found for policy binding with `Deny` \
                 parameterNotFoundAction",
            ),
        ),
        (
            "an unknown kind of parameters",
            with(rule("true"), "paramKind", json!({ "apiVersion": "g/v1", "kind": "Q" })),
            reference("y"),
            Some(
                "failed to configure policy: failed to find resource referenced by paramKind: \
                 'g/v1, Kind=Q'",
            ),
        ),
        (
            "a condition that is not met",
            with(
                rule("false"),
                "matchConditions",
                json!([{ "name": "c", "expression": "object.a == 2" }]),
            ),
            none.clone(),
            None,
        ),
        (
            "a variable that is not needed",
            with(
                rule("true || variables.v == 1"),
                "variables",
                json!([{ "name": "v", "expression": "object.none" }]),
            ),
            none,
            None,
        ),
    ];
    for (what, spec, binding, expected) in table {
        let outcome = evaluate_one(&spec, &binding, &world, &json!({ "a": 1 }));
        assert_eq!(denial_of(&outcome), expected, "{what}: {outcome:?}");
    }
}

#[test]
fn variables_share_the_budget_of_rules() {
    // Each variable costs more than half a million; a policy has ten million.
    let one = "[1,2].all(i, authorizer.requestResource.check('get').allowed())";
    let variables: Vec<Json> =
        (0..20).map(|nth| json!({ "name": format!("v{nth}"), "expression": one })).collect();
    let all: Vec<String> = (0..20).map(|nth| format!("variables.v{nth}")).collect();
    let spec = json!({
        "variables": variables, "validations": [{ "expression": all.join(" && ") }],
    });
    let outcome = evaluate_one(&spec, &json!({}), &TestWorld::default(), &json!({}));
    assert_eq!(denial_of(&outcome), Some(BUDGET_EXHAUSTED_MESSAGE));
    let few = json!({
        "variables": variables, "validations": [{ "expression": all[..10].join(" && ") }],
    });
    assert_eq!(denial_of(&evaluate_one(&few, &json!({}), &TestWorld::default(), &json!({}))), None);
}

#[test]
fn requests_use_the_matched_version() {
    let spec = json!({
        "matchConstraints": { "matchPolicy": "Equivalent", "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v2"], "operations": ["CREATE"],
            "resources": ["things"],
        }] },
        "validations": [{
            "expression": "false",
            "messageExpression": "object.apiVersion + ' ' + request.resource.version + ' ' + \
                                  request.requestResource.version",
        }],
    });
    let world = TestWorld { equivalents: vec![view("v1"), view("v2")], ..TestWorld::default() };
    assert_eq!(
        denial_of(&evaluate_one(&spec, &json!({}), &world, &json!({ "apiVersion": "v1" }))),
        Some("v2 v2 v1")
    );
    assert_eq!(
        denial_of(&evaluate_one(&spec, &json!({}), &TestWorld::default(), &json!({}))),
        None
    );
}

proptest! {
    /// What a binding does about an objection never changes whether there is one.
    #[test]
    fn actions_do_not_change_violations(truth in any::<bool>(), fails in any::<bool>()) {
        let expression = if fails { "object.none == 1".to_owned() } else { truth.to_string() };
        let spec = json!({ "validations": [{ "expression": expression }] });
        let with = |actions: Json| {
            evaluate_one(&spec, &json!({ "validationActions": actions }), &TestWorld::default(), &json!({}))
        };
        let objected = with(json!(["Deny"])).denied.is_some();
        prop_assert_eq!(objected, fails || !truth);
        let warned = with(json!(["Warn", "Audit"]));
        prop_assert!(warned.denied.is_none());
        prop_assert_eq!(warned.warnings.len(), usize::from(objected));
        prop_assert_eq!(warned.annotations.len(), usize::from(objected));
    }

    /// A rule about one operation, group, version and resource means exactly that.
    #[test]
    fn rules_match_exactly(wanted in 0_usize..4, given in 0_usize..4, part in 0_usize..3) {
        let operations = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
        let parts = ["", "status", "scale"];
        let rule = json!({ "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": [operations[wanted].as_str()],
            "resources": ["things/*"],
        }] });
        let criteria = crate::matching::Criteria::of_policy(&rule);
        let (view, user, object) = (view("v1"), json!({}), json!({}));
        let request = Request {
            operation: operations[given], view: &view, subresource: parts[part], name: "n",
            namespace: "here", user: &user, dry_run: false, options: &Json::Null,
            object: Some(&object), old: None,
        };
        let found = criteria.matches(&request, &TestWorld::default()).unwrap();
        prop_assert_eq!(found.is_some(), wanted == given);
    }
}
