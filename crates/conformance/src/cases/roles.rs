//! Roles, bindings and people the cases about access are made of.

use serde_json::{Value, json};

use crate::case::{CaseError, Outcome};
use crate::session::{RequestSpec, Session};

pub(super) const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(super) const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
pub(super) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
pub(super) const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";
pub(super) const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
pub(super) const OWN_ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A request made as a user who is in no group but that of all authenticated users.
pub(super) fn as_user(user: &str, ask: RequestSpec) -> RequestSpec {
    ask.header("impersonate-user", user)
}

/// A rule in short: `group resources verbs [names]`, or `/path verbs`. Lists are separated by
/// commas, and the core group is a dash.
pub(super) fn rule(brief: &str) -> Value {
    let list = |text: &str| -> Vec<String> {
        text.split(',').map(|it| if it == "-" { String::new() } else { it.to_owned() }).collect()
    };
    let words: Vec<&str> = brief.split(' ').collect();
    match words.as_slice() {
        [paths, verbs] => json!({ "nonResourceURLs": list(paths), "verbs": list(verbs) }),
        [groups, resources, verbs] => {
            json!({ "apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs) })
        }
        [groups, resources, verbs, names, ..] => json!({
            "apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs),
            "resourceNames": list(names),
        }),
        [] | [_] => Value::Null,
    }
}

/// The rules of a role in short.
pub(super) fn rules(briefs: &[&str]) -> Value {
    briefs.iter().map(|brief| rule(brief)).collect()
}

/// A role with rules in short.
pub(super) fn role(name: &str, briefs: &[&str]) -> Value {
    json!({ "metadata": { "name": name }, "rules": rules(briefs) })
}

/// A binding of a role to a user.
pub(super) fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
        "subjects": [{ "kind": "User", "name": user }],
    })
}

/// Gives a user rules in the case's namespace. Not part of the transcript.
pub(super) async fn allow_in_namespace(talk: &mut Session, user: &str, briefs: &[&str]) -> Outcome {
    create_unrecorded(talk, ROLES, &role(user, briefs)).await?;
    create_unrecorded(talk, BINDINGS, &binding(user, "Role", user, user)).await
}

/// Gives a user rules in the whole cluster. Not part of the transcript.
pub(super) async fn allow_everywhere(talk: &mut Session, user: &str, briefs: &[&str]) -> Outcome {
    create_unrecorded(talk, CLUSTER_ROLES, &role(user, briefs)).await?;
    talk.delete_at_end(&format!("{CLUSTER_ROLES}/{user}"));
    create_unrecorded(talk, CLUSTER_BINDINGS, &binding(user, "ClusterRole", user, user)).await?;
    talk.delete_at_end(&format!("{CLUSTER_BINDINGS}/{user}"));
    Ok(())
}

pub(super) async fn create_unrecorded(talk: &mut Session, path: &str, body: &Value) -> Outcome {
    talk.send_unrecorded(RequestSpec::post(path, body)).await?.expect(201)?;
    Ok(())
}

/// Waits until the server that decides knows what was written to the one that stores: on the real
/// one these are two. Not part of the transcript.
pub(super) async fn wait_until_allowed(
    talk: &mut Session,
    user: &str,
    attributes: &Value,
) -> Outcome {
    let body = json!({ "spec": { "user": user, "resourceAttributes": attributes } });
    let ask = RequestSpec::post(ACCESS, &body);
    talk.send_until_unrecorded(ask, |answer| *answer.at("/status/allowed") == true).await?;
    Ok(())
}

/// Sends a request as a user and records it.
pub(super) async fn send_as(
    talk: &mut Session,
    user: &str,
    ask: RequestSpec,
) -> Result<crate::response::Response, CaseError> {
    talk.send(as_user(user, ask)).await
}
