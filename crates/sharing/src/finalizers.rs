//! Pods that stay terminating because the controllers that own their finalizers are gone.

use serde::Serialize;
use serde_json::Value;

use crate::definition::{list, strings, text};

/// The prefix of the finalizers of the controllers.
pub const FINALIZER_PREFIX: &str = "dual-pods.llm-d.ai/";

/// Which pods are released from finalizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSelection {
    /// Those that are being deleted.
    Terminating,
    /// All: no controller will reconcile them again.
    All,
}

/// A pod with finalizers of the controllers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodWithFinalizers {
    /// The pod.
    pub pod: String,
    /// The finalizers to remove.
    pub remove: Vec<String>,
    /// The finalizers to keep.
    pub keep: Vec<String>,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// The revision at which it was read.
    pub resource_version: String,
}

/// The pods with finalizers of the controllers: those to release, and those that are left alone
/// because they are not being deleted.
#[must_use]
pub fn plan(
    pods: &[Value],
    which: PodSelection,
) -> (Vec<PodWithFinalizers>, Vec<PodWithFinalizers>) {
    let held = pods.iter().map(pod_with_finalizers).filter(|it| !it.remove.is_empty());
    held.partition(|it| it.deleted || which == PodSelection::All)
}

fn pod_with_finalizers(pod: &Value) -> PodWithFinalizers {
    let (remove, keep): (Vec<String>, Vec<String>) = strings(pod, "/metadata/finalizers")
        .into_iter()
        .partition(|it| it.starts_with(FINALIZER_PREFIX));
    PodWithFinalizers {
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
    fn only_own_stuck_finalizers_are_removed() {
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
        let names =
            |held: &[PodWithFinalizers]| held.iter().map(|it| it.pod.clone()).collect::<Vec<_>>();
        let (freed, left) = plan(&pods, PodSelection::Terminating);
        assert_eq!(
            (names(&freed), names(&left)),
            (vec!["stuck".to_owned()], vec!["alive".to_owned()])
        );
        assert_eq!(freed[0].remove, ["dual-pods.llm-d.ai/provider"]);
        assert_eq!(freed[0].keep, ["x.test/other"]);
        let (freed, left) = plan(&pods, PodSelection::All);
        assert_eq!(names(&freed), ["stuck", "alive"]);
        assert!(left.is_empty());
    }
}
