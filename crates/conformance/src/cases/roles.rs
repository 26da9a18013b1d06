//! Roles, bindings and people the cases about access are made of.

use serde_json::{Value, json};

use crate::case::{CaseError, Outcome};
use crate::conversation::{Ask, Conversation};

pub(super) const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(super) const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
pub(super) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
pub(super) const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";
pub(super) const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
pub(super) const OWN_ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A request made as somebody, who is in no group but that of everyone who is known.
pub(super) fn by(user: &str, ask: Ask) -> Ask {
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
pub(super) async fn allow(talk: &mut Conversation, user: &str, briefs: &[&str]) -> Outcome {
    make(talk, ROLES, &role(user, briefs)).await?;
    make(talk, BINDINGS, &binding(user, "Role", user, user)).await
}

/// Gives a user rules in the whole cluster. Not part of the transcript.
pub(super) async fn allow_everywhere(
    talk: &mut Conversation,
    user: &str,
    briefs: &[&str],
) -> Outcome {
    make(talk, CLUSTER_ROLES, &role(user, briefs)).await?;
    talk.delete_at_end(&format!("{CLUSTER_ROLES}/{user}"));
    make(talk, CLUSTER_BINDINGS, &binding(user, "ClusterRole", user, user)).await?;
    talk.delete_at_end(&format!("{CLUSTER_BINDINGS}/{user}"));
    Ok(())
}

pub(super) async fn make(talk: &mut Conversation, path: &str, body: &Value) -> Outcome {
    talk.ask_unrecorded(Ask::post(path, body)).await?.expect(201)?;
    Ok(())
}

/// Waits until the server that decides knows what was written to the one that stores: on the real
/// one these are two. Not part of the transcript.
pub(super) async fn wait_until_allowed(
    talk: &mut Conversation,
    user: &str,
    attributes: &Value,
) -> Outcome {
    let body = json!({ "spec": { "user": user, "resourceAttributes": attributes } });
    let ask = Ask::post(ACCESS, &body);
    talk.ask_until_unrecorded(ask, |answer| *answer.at("/status/allowed") == true).await?;
    Ok(())
}

/// Sends a request as a user and records it.
pub(super) async fn ask_as(
    talk: &mut Conversation,
    user: &str,
    ask: Ask,
) -> Result<crate::answer::Answer, CaseError> {
    talk.ask(by(user, ask)).await
}
