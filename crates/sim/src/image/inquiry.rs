//! Decides which images are pulled.

use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, Question, WantedQuestions};
use gantry_reconcile::{Change, Inquiry, Key, Kind, World};
use jiff::Timestamp;

use super::ImagePull;
use crate::kubelet::Settings;
use crate::view::{Container, ContainerStatus, Node, Pod, PulledImage};

/// How often an image is asked for again while containers wait for it. Kubelets back off up to five
/// minutes.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Asks for the images that containers on simulated nodes wait for.
#[derive(Clone, Debug)]
pub struct PodImageInquiry {
    settings: Settings,
}

impl PodImageInquiry {
    /// Creates an inquiry for the pods of the nodes that these settings simulate.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

/// Returns the pull of a container's image.
pub(crate) fn pull_of(pod: &Pod, container: &Container) -> ImagePull {
    let account = match pod.spec.service_account_name.as_str() {
        "" => "default",
        name => name,
    };
    ImagePull {
        image: container.image.clone(),
        namespace: pod.metadata.namespace.clone(),
        account: account.to_owned(),
    }
}

impl Inquiry for PodImageInquiry {
    type Fact = PulledImage;

    fn name(&self) -> &'static str {
        "pod-images"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Pod>() {
            let matters = |it: &Pod| !it.spec.node_name.is_empty() && self.settings.pulls_any(it);
            let matters = change.both::<Pod>().any(matters);
            return matters.then(|| change.key.clone()).into_iter().collect();
        }
        let up = |it: &Node| self.settings.runs_pods(it);
        if change.before::<Node>().map(up) == change.after::<Node>().map(up) {
            return Vec::new();
        }
        let pods = world.store::<Pod>().by_index(&Pod::node_tag(change.key.name()));
        let pods = pods.iter().filter(|it| self.settings.pulls_any(it));
        pods.map(|it| it.metadata.key()).collect()
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
        let runs = node.is_some_and(|it| self.settings.runs_pods(&it));
        if pod.is_terminal() || pod.metadata.is_terminating() || !runs {
            return none;
        }
        let status = &pod.status;
        let statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
        let statuses: Vec<&ContainerStatus> = statuses.collect();
        let waits = |container: &&Container| {
            let status = statuses.iter().find(|it| it.name == container.name);
            self.settings.pulls(container) && status.is_none_or(|it| it.state.running.is_none())
        };
        let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.filter(waits).map(|it| pull_of(&pod, it)).collect()
    }

    fn policy(&self, _: &ImagePull) -> InquiryPolicy {
        InquiryPolicy { refresh_interval: RETRY_INTERVAL, ..InquiryPolicy::default() }
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: 8, per_group: 4 }
    }

    fn group(&self, question: &ImagePull) -> String {
        question.namespace.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::test_world::TestWorld;

    /// Images are asked for while a container waits for them, once for each account.
    #[test]
    fn only_awaited_images_are_pulled() {
        let inquiry = PodImageInquiry::new(Settings {
            registries: Arc::new(["reg:1".to_owned()].into()),
            programs: Arc::new(["reg:1/built/in".to_owned()].into()),
            ..Settings::default()
        });
        let state = |state: &str| {
            let status = json!({"name": "c", "state": {state: {}}});
            json!({"phase": "Running", "containerStatuses": [status]})
        };
        let table = [
            ("n1", "reg:1/a/b:v1", json!({}), true),
            ("n1", "reg:1/a/b:v1", state("waiting"), true),
            ("n1", "reg:1/a/b:v1", state("terminated"), true),
            ("n1", "reg:1/a/b:v1", state("running"), false),
            ("n1", "reg:1/a/b:v1", json!({"phase": "Failed"}), false),
            ("n1", "reg:10/a/b:v1", json!({}), false),
            ("n1", "b:v1", json!({}), false),
            ("n1", "reg:1/built/in:v1", json!({}), false),
            ("", "reg:1/a/b:v1", json!({}), false),
            ("real", "reg:1/a/b:v1", json!({}), false),
            ("rebooting", "reg:1/a/b:v1", json!({}), false),
        ];
        for (node, image, status, expected) in table {
            let pods = crate::kubelet::SimulatedPods::default();
            let mut test_world = TestWorld::new(&[&pods]);
            let fake = json!({"kwok.x-k8s.io/node": "fake"});
            test_world.put::<Node>(json!({"metadata": {"name": "n1", "annotations": fake}}));
            test_world.put::<Node>(json!({"metadata": {"name": "real"}}));
            let other: Value = json!({
                "kwok.x-k8s.io/node": "fake", "gantry.dev/sim-kernel-version": "6.2.0",
            });
            test_world.put::<Node>(json!({
                "metadata": {"name": "rebooting", "annotations": other},
                "status": {"nodeInfo": {"kernelVersion": "6.1.0"}},
            }));
            test_world.put::<Pod>(json!({
                "metadata": {"name": "p", "namespace": "team"},
                "spec": {
                    "nodeName": node, "serviceAccountName": "sa",
                    "containers": [{"name": "c", "image": image}, {"name": "d", "image": "x"}],
                },
                "status": status,
            }));
            let key = Key::new("team", "p");
            let wanted = inquiry.wanted_questions(&test_world.world, &key, test_world.now);
            let pull = ImagePull {
                image: image.to_owned(),
                namespace: "team".to_owned(),
                account: "sa".to_owned(),
            };
            let expected: Vec<ImagePull> = expected.then_some(pull).into_iter().collect();
            let wanted: Vec<ImagePull> = wanted.questions.into_iter().collect();
            assert_eq!(wanted, expected, "{node:?} {image} {status}");
        }
    }
}
