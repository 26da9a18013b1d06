//! Decides which ConfigMaps and Secrets are read.

use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, Question, WantedQuestions};
use gantry_reconcile::{Change, Inquiry, Key, Kind, World};
use jiff::Timestamp;

use super::{SourcesWithoutPrograms, sources_of};
use crate::kubelet::Settings;
use crate::view::{ContainerStatus, Node, Pod, SourceKey, SourceObject};

/// How often an object is read again while a pod waits for it or a program has it mounted. Kubelets
/// take up to a minute.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// Reads the ConfigMaps and Secrets that pods on simulated nodes reference, one by one.
///
/// They are never listed or watched: the simulation needs the permission to get an object by its
/// name and no more. An object is wanted until the containers of a pod have started, and as long as
/// the pod runs programs, whose files are refreshed.
#[derive(Clone, Debug)]
pub struct PodSourceInquiry {
    settings: Settings,
}

impl PodSourceInquiry {
    /// Creates an inquiry for the pods of the nodes that these settings simulate.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Inquiry for PodSourceInquiry {
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
        let pods = world.store::<Pod>().by_index(&Pod::node_tag(change.key.name()));
        pods.iter().map(|it| it.metadata.key()).collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        _: Timestamp,
    ) -> WantedQuestions<Question<Self>> {
        let none = WantedQuestions::default();
        let Some(pod) = world.store::<Pod>().get(key) else { return none };
        let node = world.store::<Node>().get(&Key::cluster(&pod.spec.node_name));
        if pod.is_terminal() || !node.is_some_and(|it| self.settings.is_up(&it)) {
            return none;
        }
        if self.settings.has_programs(&pod) {
            return sources_of(&pod).into_iter().collect();
        }
        match !pod.metadata.is_terminating() && is_starting(&pod) {
            true => {
                let all = sources_of(&pod).into_iter();
                all.filter(|it| !SourcesWithoutPrograms::assumes(it)).collect()
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

/// Returns whether a container of the pod waits to be started or restarted.
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
    use crate::test_world::TestWorld;

    /// Objects are read while a pod waits for them, and as long as programs have them mounted.
    #[test]
    fn only_needed_objects_are_read() {
        let programs = Arc::new(["prog".to_owned()].into());
        let inquiry = PodSourceInquiry::new(Settings { programs, ..Settings::default() });
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
            let pods = crate::kubelet::SimulatedPods::default();
            let mut test_world = TestWorld::new(&[&pods]);
            let fake: Value = json!({"kwok.x-k8s.io/node": "fake"});
            test_world.put::<Node>(json!({"metadata": {"name": "n1", "annotations": fake}}));
            test_world.put::<Node>(json!({"metadata": {"name": "real"}}));
            test_world.put::<Pod>(json!({
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
            let wanted = inquiry.wanted_questions(
                &test_world.world,
                &Key::new("default", "p"),
                test_world.now,
            );
            let count = usize::from(expected) * if image == "prog" { 2 } else { 1 };
            assert_eq!(wanted.questions.len(), count, "{node:?} {image} {status}");
        }
    }
}
