//! Which ConfigMaps and Secrets are read.

use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, Question, Wanted};
use gantry_reconcile::{Change, Inquiry, Key, Kind, World};
use jiff::Timestamp;

use super::{WithoutPrograms, sources_of};
use crate::kubelet::Settings;
use crate::view::{ContainerStatus, Node, Pod, SourceKey, SourceObject};

/// After how long an object is read again while a pod waits for it or shows it to a program. Kubelets take
/// up to a minute.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// Reads the ConfigMaps and Secrets that pods on simulated nodes name, one by one.
///
/// They are never listed or watched: whoever simulates nodes needs the right to read an object by its name
/// and no more. An object is wanted until the containers of a pod have started, and as long as the pod runs
/// programs, which are shown changes.
#[derive(Clone, Debug)]
pub struct PodSources {
    settings: Settings,
}

impl PodSources {
    /// For the pods of the nodes that these settings simulate.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Inquiry for PodSources {
    type Fact = SourceObject;

    fn name(&self) -> &'static str {
        "pod-sources"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Pod>() {
            let matters = |it: &Pod| !it.spec.node_name.is_empty();
            return change
                .both::<Pod>()
                .any(matters)
                .then(|| change.key.clone())
                .into_iter()
                .collect();
        }
        let up = |it: &Node| self.settings.is_up(it);
        if change.before::<Node>().map(up) == change.after::<Node>().map(up) {
            return Vec::new();
        }
        let pods = world.shelf::<Pod>().tagged(&Pod::on_node(change.key.name()));
        pods.iter().map(|it| it.metadata.key()).collect()
    }

    fn wanted(&self, world: &World, key: &Key, _: Timestamp) -> Wanted<Question<Self>> {
        let none = Wanted::default();
        let Some(pod) = world.shelf::<Pod>().get(key) else { return none };
        let node = world.shelf::<Node>().get(&Key::cluster(&pod.spec.node_name));
        if pod.is_over() || !node.is_some_and(|it| self.settings.is_up(&it)) {
            return none;
        }
        if self.settings.has_programs(&pod) {
            return sources_of(&pod).into_iter().collect();
        }
        match !pod.metadata.is_going() && is_starting(&pod) {
            true => {
                let all = sources_of(&pod).into_iter();
                all.filter(|it| !WithoutPrograms::assumes(it)).collect()
            }
            false => none,
        }
    }

    fn policy(&self, _: &SourceKey) -> InquiryPolicy {
        InquiryPolicy { refresh_interval: REFRESH_INTERVAL, ..InquiryPolicy::default() }
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: 16, per_group: 4 }
    }

    fn group(&self, question: &SourceKey) -> String {
        question.namespace.clone()
    }
}

/// Whether a container of the pod waits to be started, for the first time or again.
fn is_starting(pod: &Pod) -> bool {
    let status = &pod.status;
    let mut all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let waits = |it: &ContainerStatus| it.state.waiting.is_some();
    status.container_statuses.is_empty() || all.any(waits)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::stand::Stand;

    /// Objects are read while somebody waits for them, and as long as programs are shown them.
    #[test]
    fn no_object_is_read_that_nobody_needs() {
        let programs = Arc::new(["prog".to_owned()].into());
        let inquiry = PodSources::new(Settings { programs, ..Settings::default() });
        let state = |state: &str| json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": {state: {}}}]});
        let table = [
            ("n1", "i", json!({}), true),
            ("n1", "i", state("waiting"), true),
            ("n1", "i", state("running"), false),
            ("n1", "prog", state("running"), true),
            ("n1", "prog", json!({"phase": "Failed"}), false),
            ("", "prog", json!({}), false),
            ("real", "prog", json!({}), false),
        ];
        for (node, image, status, expected) in table {
            let pods = crate::kubelet::Pods::default();
            let mut stand = Stand::new(&[&pods]);
            let fake: Value = json!({"kwok.x-k8s.io/node": "fake"});
            stand.put::<Node>(json!({"metadata": {"name": "n1", "annotations": fake}}));
            stand.put::<Node>(json!({"metadata": {"name": "real"}}));
            stand.put::<Pod>(json!({
                "metadata": {"name": "p", "namespace": "default"},
                "spec": {
                    "nodeName": node, "containers": [{"name": "c", "image": image}],
                    "volumes": [
                        {"name": "v", "secret": {"secretName": "s"}},
                        {"name": "w", "configMap": {"name": "kube-root-ca.crt"}},
                    ],
                },
                "status": status,
            }));
            let wanted = inquiry.wanted(&stand.world, &Key::new("default", "p"), stand.now);
            let count = usize::from(expected) * if image == "prog" { 2 } else { 1 };
            assert_eq!(wanted.questions.len(), count, "{node:?} {image} {status}");
        }
    }
}
