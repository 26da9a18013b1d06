//! Checks whether an AppWrapper may be charged to the leaves of quota trees that it names.
//!
//! Any user may write the label that names a leaf. The [bindings](crate::quota::bindings) of a tree
//! define which AppWrappers may use a leaf. They are checked twice: when an AppWrapper is written,
//! so that its author gets an error at once, and by the queue, which does not rely on the webhook.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::World;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::access;
use crate::amounts::format_amount;
use crate::app_wrapper::{AUTHOR_ANNOTATION, AppWrapper};
use crate::author::Author;
use crate::quota::{Applicant, Bindings, DEFAULT_NODE, LeafForbidden, Subtree};
use crate::settings::{Inference, Settings};

/// Checks whether an AppWrapper may be charged to the leaves that it names.
///
/// # Errors
/// Where it may not, and why.
pub(crate) fn check_leaves(
    world: &World,
    wrapper: &AppWrapper,
    bindings: &Bindings,
    settings: &Settings,
) -> Result<(), Box<LeafForbidden>> {
    let strict = settings.require_quota_bindings;
    if bindings.has_no_bindings() && !strict {
        return Ok(());
    }
    let author = recorded_author(world, wrapper, settings);
    let applicant = Applicant {
        namespace: &wrapper.metadata.namespace,
        labels: &wrapper.metadata.labels,
        author: author.as_ref().map(|it| (it.username.as_str(), it.groups.as_slice())),
    };
    bindings.check(&applicant, strict)
}

/// Returns the author of an AppWrapper, where authors are recorded: otherwise any user could have
/// written the annotation.
fn recorded_author(world: &World, wrapper: &AppWrapper, settings: &Settings) -> Option<Author> {
    if !settings.user_access.is_checked() {
        return None;
    }
    let since = access::recorded_since(world)?;
    let made = wrapper.metadata.creation_timestamp.unwrap_or(Timestamp::MIN);
    let author = wrapper.author().filter(|_| made >= since)?;
    Author::read(author)
}

/// Completes the answer to an AdmissionReview about an AppWrapper: one that names a leaf which its
/// author may not use is refused, and one that is charged less than its templates request gets a
/// warning.
#[must_use]
pub fn complete_review(
    review: &Value,
    answer: Value,
    subtrees: &[Arc<Subtree>],
    settings: &Settings,
) -> Value {
    let request = &review["request"];
    let main = request["subResource"].as_str().unwrap_or_default().is_empty();
    let (object, old) = (&request["object"], &request["oldObject"]);
    let is_answer = answer["response"]["allowed"] == true && main && object.is_object();
    if !is_answer {
        return answer;
    }
    let mut answer = answer;
    let bindings = match settings.quota {
        true => Bindings::of(subtrees),
        false => Bindings::default(),
    };
    if settings.quota
        && let Err(why) = check_request(request, object, old, &bindings, subtrees, settings)
    {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let message = format!("appwrappers.workload.codeflare.dev {name:?} is forbidden: {why}");
        answer["response"] = json!({
            "uid": request["uid"].as_str().unwrap_or_default(), "allowed": false,
            "status": {"code": 403, "reason": "Forbidden", "message": message},
        });
        return answer;
    }
    let items = |object: &Value| object["spec"]["resources"].clone();
    if old.is_null() || items(object) != items(old) {
        let warning = object_warning(object, settings);
        if let Some(warning) = warning {
            answer["response"]["warnings"] = json!([warning]);
        }
    }
    answer
}

/// Checks whether a written object may name its leaves.
fn check_request(
    request: &Value,
    object: &Value,
    old: &Value,
    bindings: &Bindings,
    subtrees: &[Arc<Subtree>],
    settings: &Settings,
) -> Result<(), Box<LeafForbidden>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let trees = || subtrees.iter().filter_map(|it| it.tree());
    // A tree without a label gets one from the queue.
    let labels = |object: &Value| -> BTreeMap<String, String> {
        let label = |tree: &str| match object["metadata"]["labels"][tree].as_str() {
            Some(leaf) => (tree.to_owned(), leaf.to_owned()),
            None => (tree.to_owned(), DEFAULT_NODE.to_owned()),
        };
        trees().map(label).collect()
    };
    let items = |object: &Value| object["spec"]["resources"].clone();
    let is_new = old.is_null();
    let other_items = is_new || items(object) != items(old);
    let other_leaves = is_new || labels(object) != labels(old);
    if !other_items && !other_leaves {
        return Ok(());
    }
    // As in the recording of authors: a user that changes labels alone is not the author.
    let author = match other_items {
        true => Author::deserialize(&request["userInfo"]).ok(),
        false => Author::read(&text(&old["metadata"]["annotations"][AUTHOR_ANNOTATION])),
    };
    let author = author.filter(|it| !it.username.is_empty());
    let labels = labels(object);
    let applicant = Applicant {
        namespace: &text(&request["namespace"]),
        labels: &labels,
        author: author.as_ref().map(|it| (it.username.as_str(), it.groups.as_slice())),
    };
    bindings.check(&applicant, settings.require_quota_bindings)
}

/// Returns the warning about an AppWrapper that is charged less than its templates request.
fn object_warning(object: &Value, settings: &Settings) -> Option<String> {
    match settings.inference {
        Inference::Full => None,
        Inference::Compat => {
            // The schema refuses what cannot be read.
            let wrapper = AppWrapper::deserialize(object).ok()?;
            understated_demand_warning(&wrapper, settings)
        }
    }
}

/// Returns the warning about an AppWrapper that is charged less than its templates request, if it
/// is.
#[must_use]
pub fn understated_demand_warning(wrapper: &AppWrapper, settings: &Settings) -> Option<String> {
    let lacks = wrapper.demand().understated(settings.inference);
    let lacks: Vec<String> = lacks
        .iter()
        .map(|(name, charged, asked)| {
            format!("{name} {} of {}", format_amount(name, *charged), format_amount(name, *asked))
        })
        .collect();
    if lacks.is_empty() {
        return None;
    }
    Some(format!(
        "its templates ask for more than it is charged for ({}): declare it in custompodresources",
        lacks.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::BINDINGS_ANNOTATION;

    fn subtrees() -> Vec<Arc<Subtree>> {
        let object = json!({
            "metadata": {"name": "leaves", "namespace": "q", "labels": {"tree": "team"},
                "annotations": {BINDINGS_ANNOTATION: r#"{"gold": {"namespaces": ["a"]}, "ml": {"groups": ["ml"]}}"#}},
            "spec": {"children": [{"name": "all"}, {"name": "gold"}, {"name": "ml"}, {"name": "default"}]},
        });
        vec![Arc::new(serde_json::from_value(object).unwrap())]
    }

    fn wrapper(leaf: Option<&str>, author: Option<&str>, cpu: &str) -> Value {
        let mut object = json!({
            "metadata": {"name": "x", "labels": {}},
            "spec": {"resources": {"GenericItems": [{
                "custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}],
                "generictemplate": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [
                    {"name": "c", "resources": {"requests": {"cpu": 4}}}]}},
            }]}},
        });
        if let Some(leaf) = leaf {
            object["metadata"]["labels"] = json!({"team": leaf});
        }
        if let Some(group) = author {
            let author = json!({"username": "bob", "groups": [group]}).to_string();
            object["metadata"]["annotations"] = json!({AUTHOR_ANNOTATION: author});
        }
        object
    }

    fn asked(
        namespace: &str,
        group: &str,
        object: &Value,
        old: &Value,
        settings: &Settings,
    ) -> Value {
        let question = json!({"request": {
            "uid": "u", "namespace": namespace, "userInfo": {"username": "bob", "groups": [group]},
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "object": object, "oldObject": old,
        }});
        let answer = json!({"response": {"uid": "u", "allowed": true, "patch": "p"}});
        complete_review(&question, answer, &subtrees(), settings)["response"].clone()
    }

    #[test]
    fn a_forbidden_leaf_is_rejected_on_write() {
        let settings = Settings { quota: true, ..Settings::default() };
        let strict = Settings { require_quota_bindings: true, ..settings };
        let off = Settings { quota: false, ..settings };
        let none = Value::Null;
        let (gold, open) = (wrapper(Some("gold"), None, "4"), wrapper(None, None, "4"));
        let (ml, by_ml) = (wrapper(Some("ml"), None, "4"), wrapper(None, Some("ml"), "4"));
        let moved = wrapper(Some("ml"), Some("ml"), "4");
        let table = [
            ("one's own", "a", "x", &gold, &none, &settings, true),
            ("a foreign one", "b", "x", &gold, &none, &settings, false),
            ("no quota", "b", "x", &gold, &none, &off, true),
            ("an open one", "b", "x", &open, &none, &settings, true),
            ("nothing is open", "b", "x", &open, &none, &strict, false),
            ("by group", "b", "ml", &ml, &none, &settings, true),
            ("of another group", "b", "x", &ml, &none, &settings, false),
            ("another label later", "b", "x", &gold, &open, &settings, false),
            ("nothing about leaves", "b", "x", &gold, &gold, &settings, true),
            (
                "the author counts, not the user that moves it",
                "b",
                "x",
                &moved,
                &by_ml,
                &settings,
                true,
            ),
            ("the same the other way round", "b", "ml", &ml, &open, &settings, false),
        ];
        for (why, namespace, group, object, old, settings, allowed) in table {
            let said = asked(namespace, group, object, old, settings);
            assert_eq!(said["allowed"], allowed, "{why}: {said}");
            assert_eq!(said["patch"] == "p", allowed, "{why}: what was answered stays");
        }
        let said = asked("b", "x", &gold, &none, &settings);
        let message = said["status"]["message"].as_str().unwrap();
        let expected = "appwrappers.workload.codeflare.dev \"x\" is forbidden: leaf \"gold\" of quota tree team is \
                        bound to namespace a, and namespace \"b\" is not among them; use another leaf";
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(said["status"]["code"], 403);
    }

    #[test]
    fn understated_demand_is_warned_about() {
        let compat = Settings { inference: Inference::Compat, ..Settings::default() };
        let less = wrapper(None, None, "10m");
        let said = asked("a", "x", &less, &Value::Null, &compat);
        let expected = "its templates ask for more than it is charged for (cpu 10m of 4): declare it in \
                        custompodresources";
        assert_eq!((&said["allowed"], &said["warnings"]), (&json!(true), &json!([expected])));
        let full = asked("a", "x", &less, &Value::Null, &Settings::default());
        assert!(full["warnings"].is_null(), "it is charged for all of it");
        let same = asked("a", "x", &less, &less, &compat);
        assert!(same["warnings"].is_null(), "nothing about its items was written");
    }
}
