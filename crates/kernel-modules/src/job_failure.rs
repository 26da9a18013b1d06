//! Why Jobs fail: what their containers said last, and what to do about words that are known.

use gantry_reconcile::World;
use gantry_reconcile::world::IndexValue;

use crate::driver_failure::quoted_end;
use crate::settings::BuildIsolation;
use crate::view::{Job, ModulePod};

/// What a kernel answers to buildah that may not create namespaces.
const REFUSED_UNSHARE: [&str; 2] = ["unshare(", "Operation not permitted"];

/// Why a Job failed: the last words of the container that failed, with the remedy if they are
/// known. Without them it is what the Job itself says, for instance that it took too long.
#[must_use]
pub(crate) fn reason(world: &World, job: &Job, message: &str, isolation: BuildIsolation) -> String {
    let pods = world.store::<ModulePod>().by_index(&IndexValue::owner(&job.metadata.uid));
    // A Job has one pod. If an administrator has added others, any of them tells why.
    let words = pods.iter().filter_map(|pod| last_words(pod)).max().unwrap_or_default();
    match (remedy(words, isolation), quoted_end(words)) {
        (_, quote) if quote.is_empty() => message.to_owned(),
        (None, quote) => format!("its last words: {quote}"),
        (Some(remedy), quote) => format!("{remedy}; its last words: {quote}"),
    }
}

/// What the container of a pod said that failed.
fn last_words(pod: &ModulePod) -> Option<&str> {
    let status = &pod.status;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let ended = all.filter_map(|it| it.state.terminated.as_ref());
    ended.filter(|it| it.exit_code != 0).map(|it| it.message.as_str()).next()
}

/// What to do about words that are known.
fn remedy(words: &str, isolation: BuildIsolation) -> Option<&'static str> {
    if !REFUSED_UNSHARE.iter().all(|part| words.contains(part)) {
        return None;
    }
    Some(match isolation {
        BuildIsolation::UserNamespace => {
            "the node does not let the builder create namespaces: its kubelet and container \
             runtime have no user namespaces for pods; set modules.builder.isolation to unconfined"
        }
        BuildIsolation::Unconfined => {
            "the node does not let the builder create namespaces: allow unprivileged user \
             namespaces on it (sysctl user.max_user_namespaces), or set modules.builder.isolation \
             to userNamespace where kubelets create them"
        }
    })
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::Meta;

    use super::*;
    use crate::view::{ContainerState, ContainerStatus, ModulePodStatus, TerminatedState};

    fn ended(exit_code: i32, message: &str) -> ContainerStatus {
        let message = message.to_owned();
        let terminated = Some(TerminatedState { exit_code, message, ..TerminatedState::default() });
        let state = ContainerState { terminated, ..ContainerState::default() };
        ContainerStatus { state, ..ContainerStatus::default() }
    }

    #[test]
    fn the_container_that_failed_tells_why() {
        let table = [
            (vec![], vec![ended(0, "sha256:1")], None),
            (vec![], vec![ended(125, "no such image")], Some("no such image")),
            (vec![ended(1, "no key")], vec![ContainerStatus::default()], Some("no key")),
            (vec![ended(0, "merged")], vec![ended(2, "denied")], Some("denied")),
        ];
        for (init_container_statuses, container_statuses, expected) in table {
            let status = ModulePodStatus {
                init_container_statuses,
                container_statuses,
                ..Default::default()
            };
            let pod = ModulePod { status, metadata: Meta::default(), ..ModulePod::default() };
            assert_eq!(last_words(&pod), expected);
        }
    }

    #[test]
    fn a_refused_user_namespace_has_a_remedy() {
        let said = "Error during unshare(CLONE_NEWUSER): Operation not permitted\n";
        let table = [
            (said, BuildIsolation::UserNamespace, Some("isolation to unconfined")),
            (said, BuildIsolation::Unconfined, Some("user.max_user_namespaces")),
            ("Operation not permitted", BuildIsolation::Unconfined, None),
            ("", BuildIsolation::UserNamespace, None),
        ];
        for (words, isolation, expected) in table {
            let found = remedy(words, isolation);
            assert_eq!(found.is_some(), expected.is_some(), "{words}");
            assert!(expected.is_none_or(|it| found.unwrap().contains(it)), "{found:?}");
        }
    }
}
