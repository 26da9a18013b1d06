//! Driver containers that do not stay up: which ones, what they say, and what to do about it.
//!
//! The words of `modprobe` are in a termination message, or in what the kubelet says about a failed
//! `postStart` hook: in the status of the container while it is killed, and in an event, which is
//! the fact [`FailedHook`]. Kubelets of some versions leave the words out of one or the other.

use std::collections::BTreeMap;

use gantry_kmod::hint::explain;
use gantry_reconcile::{Key, World};

use crate::facts::{FailedHook, FailedHookQuery};
use crate::labels::{KERNEL_ANNOTATION, KERNEL_LABEL, ModulePart, NFD_KERNEL_LABEL};
use crate::view::{ContainerStatus, DaemonSet, ModulePod};

/// The reason of events and held reasons about driver containers that do not stay up.
pub const CRASH_LOOPING: &str = "DriverContainerCrashLooping";

/// How many bytes of a message are quoted; its end counts.
const QUOTED_BYTES: usize = 512;

/// A driver container that does not stay up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverFailure {
    /// Its pod.
    pub pod: Key,
    /// The question about its failed hook.
    pub query: FailedHookQuery,
    /// Its node.
    pub node: String,
    /// The kernel that it is for.
    pub kernel: String,
    /// Its image.
    pub image: String,
    /// Its own last words, or those of its hook; may be empty.
    pub text: String,
    /// Its exit code, if it is known.
    pub exit_code: Option<i32>,
    /// Whether the kubelet waits before it starts it again.
    pub is_crash_looping: bool,
}

impl DriverFailure {
    /// Whether it is known what happened: then it is not awaited that it happens again.
    fn is_explained(&self) -> bool {
        hint(&self.text).is_some()
    }

    /// What happened and what to do, for the event and for the held reason.
    #[must_use]
    pub fn message(&self) -> String {
        let Self { pod, node, kernel, image, text, exit_code, .. } = self;
        let what = format!("driver container on node {node}, kernel {kernel}, image {image}");
        let part = ModulePart::DriverContainer.as_str();
        let next = match (hint(text), exit_code) {
            (Some(hint), _) => hint,
            (None, Some(0)) => "its command ended, and a driver container has to stay while its \
                                module is loaded; end the command with `sleep infinity`"
                .to_owned(),
            (None, _) => format!(
                "see `kubectl logs --namespace {} {} --container {part} --previous`",
                pod.namespace(),
                pod.name()
            ),
        };
        match quoted_end(text) {
            quote if quote.is_empty() => format!("{what} does not stay up: {next}"),
            quote => format!("{what} does not stay up: {next}; its last words: {quote}"),
        }
    }
}

/// Explains the output of `modprobe` or of a kernel: what it means, and what to do next.
///
/// A damaged file has no words of its own in a kernel log; the hint about a rejected key says so.
#[must_use]
pub fn hint(text: &str) -> Option<String> {
    explain(text).map(|it| format!("{}; {}", it.meaning(), it.remedy()))
}

/// The driver containers of a Module that do not stay up: one for each kernel, so that the same
/// failure on many nodes is reported once.
#[must_use]
pub fn driver_failures(world: &World, module: &Key) -> Vec<DriverFailure> {
    let all = candidates(world, module).into_iter();
    let certain = all.filter(|it| it.is_crash_looping || it.is_explained());
    first_of_each_kernel(certain)
}

/// The failed hooks that a Module needs to know about: of containers without words of their own.
#[must_use]
pub(crate) fn wanted_hooks(world: &World, module: &Key) -> Vec<FailedHookQuery> {
    let pods = world.store::<ModulePod>().by_index(&ModulePod::module_index(module));
    let silent = pods.iter().filter_map(|pod| failure_of(world, pod));
    let silent = silent.filter(|it| !it.is_explained());
    first_of_each_kernel(silent).into_iter().map(|it| it.query).collect()
}

/// The driver containers of a Module whose last run failed, with the words of their hooks.
fn candidates(world: &World, module: &Key) -> Vec<DriverFailure> {
    let pods = world.store::<ModulePod>().by_index(&ModulePod::module_index(module));
    let hooks = world.facts::<FailedHook>();
    let failures = pods.iter().filter_map(|pod| failure_of(world, pod));
    failures
        .map(|mut failure| {
            let hook = hooks.observed(&failure.query);
            let words = hook.as_ref().map_or("", |it| it.value.message.as_str());
            if !failure.is_explained() && !words.is_empty() {
                words.clone_into(&mut failure.text);
            }
            failure
        })
        .collect()
}

/// The failure of each kernel that tells most, and of those the one on the first node: what is
/// reported must not depend on the order of pods.
fn first_of_each_kernel(failures: impl Iterator<Item = DriverFailure>) -> Vec<DriverFailure> {
    let mut first: BTreeMap<String, DriverFailure> = BTreeMap::new();
    let rank = |it: &DriverFailure| (!it.is_explained(), it.text.is_empty(), it.node.clone());
    for failure in failures {
        let known = first.get(&failure.kernel);
        if known.is_none_or(|known| rank(&failure) < rank(known)) {
            first.insert(failure.kernel.clone(), failure);
        }
    }
    first.into_values().collect()
}

/// How the driver container of a pod failed, if it did and has not become ready since.
fn failure_of(world: &World, pod: &ModulePod) -> Option<DriverFailure> {
    let is_driver = pod.part() == Some(ModulePart::DriverContainer);
    let is_over = pod.is_ready() || pod.metadata.is_terminating();
    if !is_driver || is_over || pod.spec.node_name.is_empty() {
        return None;
    }
    let containers = pod.status.container_statuses.iter();
    let (status, failure) = containers.filter_map(|it| Some((it, failed_run(it)?))).next()?;
    Some(DriverFailure {
        pod: pod.metadata.key(),
        query: FailedHookQuery {
            namespace: pod.metadata.namespace.clone(),
            pod: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        },
        node: pod.spec.node_name.clone(),
        kernel: kernel_of(world, pod),
        image: status.image.clone(),
        text: failure.text.to_owned(),
        exit_code: failure.exit_code,
        is_crash_looping: failure.is_crash_looping,
    })
}

/// The kernel that a driver container is for: that of its DaemonSet, whose label may be cut.
fn kernel_of(world: &World, pod: &ModulePod) -> String {
    let owner = pod.metadata.controller().map(|it| pod.metadata.key().in_same_namespace(&it.name));
    let set = owner.and_then(|it| world.store::<DaemonSet>().get(&it));
    let kernel = set.as_ref().and_then(|it| it.metadata.annotations.get(KERNEL_ANNOTATION));
    let labels = &pod.metadata.labels;
    let label = || labels.get(KERNEL_LABEL).or_else(|| labels.get(NFD_KERNEL_LABEL));
    kernel.or_else(label).cloned().unwrap_or_default()
}

/// How the last run of a container failed.
struct FailedRun<'a> {
    text: &'a str,
    exit_code: Option<i32>,
    is_crash_looping: bool,
}

fn failed_run(status: &ContainerStatus) -> Option<FailedRun<'_>> {
    let waiting = status.state.waiting.as_ref();
    let hook = waiting.filter(|it| it.reason == "PostStartHookError");
    let backs_off = waiting.is_some_and(|it| it.reason == "CrashLoopBackOff");
    let ended = [&status.state, &status.last_state].into_iter();
    let ended = ended.filter_map(|it| it.terminated.as_ref()).next();
    let is_crash_looping = hook.is_some() || backs_off;
    if !is_crash_looping && ended.is_none_or(|it| it.exit_code == 0) {
        return None;
    }
    let hook = hook.map(|it| it.message.as_str()).filter(|it| !it.is_empty());
    let text = hook.or_else(|| ended.map(|it| it.message.as_str())).unwrap_or_default();
    Some(FailedRun { text, exit_code: ended.map(|it| it.exit_code), is_crash_looping })
}

/// The end of a text, in one line and in quotes; nothing of an empty text.
pub(crate) fn quoted_end(text: &str) -> String {
    let text = text.trim();
    let mut start = text.len().saturating_sub(QUOTED_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let line = text[start..].split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() { line } else { format!("\"{line}\"") }
}

#[cfg(test)]
mod tests;
