//! Pods that cannot go because the controllers that held them are gone.

use serde::Serialize;
use serde_json::Value;

use crate::definition::{list, strings, text};

/// How the finalizers of the controllers begin.
pub const PREFIX: &str = "dual-pods.llm-d.ai/";

/// Which pods are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that are being deleted.
    Deleted,
    /// All: no controller will come back for them.
    All,
}

/// A pod with finalizers of the controllers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The pod.
    pub pod: String,
    /// What is taken away.
    pub remove: Vec<String>,
    /// What stays.
    pub keep: Vec<String>,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// The revision it was read at.
    pub resource_version: String,
}

/// The pods that are held by the controllers: those that are freed, and those that are left alone
/// because nobody has deleted them.
#[must_use]
pub fn plan(pods: &[Value], which: Which) -> (Vec<Held>, Vec<Held>) {
    let held = pods.iter().map(held).filter(|it| !it.remove.is_empty());
    held.partition(|it| it.deleted || which == Which::All)
}

fn held(pod: &Value) -> Held {
    let (remove, keep): (Vec<String>, Vec<String>) =
        strings(pod, "/metadata/finalizers").into_iter().partition(|it| it.starts_with(PREFIX));
    Held {
        pod: text(pod, "/metadata/name").to_owned(),
        remove,
        keep,
        deleted: pod.pointer("/metadata/deletionTimestamp").is_some(),
        resource_version: text(pod, "/metadata/resourceVersion").to_owned(),
    }
}

/// The items of a list.
#[must_use]
pub fn items(answer: &Value) -> &[Value] {
    list(answer, "/items")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_stuck_and_ours_is_freed() {
        let pod = |name: &str, finalizers: &[&str], deleted: bool| {
            let mut pod = json!({"metadata": {
                "name": name, "resourceVersion": "7", "finalizers": finalizers,
            }});
            if deleted {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            pod
        };
        let pods = [
            pod("stuck", &["dual-pods.llm-d.ai/provider", "x.test/other"], true),
            pod("alive", &["dual-pods.llm-d.ai/requester"], false),
            pod("others", &["x.test/other", "xdual-pods.llm-d.ai/x"], true),
            pod("free", &[], true),
        ];
        let names = |held: &[Held]| held.iter().map(|it| it.pod.clone()).collect::<Vec<_>>();
        let (freed, left) = plan(&pods, Which::Deleted);
        assert_eq!(
            (names(&freed), names(&left)),
            (vec!["stuck".to_owned()], vec!["alive".to_owned()])
        );
        assert_eq!(freed[0].remove, ["dual-pods.llm-d.ai/provider"]);
        assert_eq!(freed[0].keep, ["x.test/other"]);
        let (freed, left) = plan(&pods, Which::All);
        assert_eq!(names(&freed), ["stuck", "alive"]);
        assert!(left.is_empty());
    }
}
