//! Chooses the launcher that serves a requester, and the instances that make way for it.

use jiff::Timestamp;

use crate::bookkeeping::InstanceUse;
use crate::facts::{InstanceState, LauncherState};
use crate::view::ActuationPod;

/// A launcher that could serve.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The launcher.
    pub launcher: &'a ActuationPod,
    /// Its instances; `None` while they are not known.
    pub state: Option<&'a LauncherState>,
    /// Whether it is bound to a requester whose binding ends.
    pub is_unbinding: bool,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The ID of the instance.
    pub id: &'a str,
    /// Its port.
    pub port: u16,
    /// The most instances of a launcher.
    pub max_instances: usize,
    /// Its InferenceServerConfig, for explanations.
    pub config: &'a str,
    /// Its accelerators, for explanations.
    pub accelerators: &'a [String],
}

/// How a requester is going to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// By an instance that exists.
    Hot,
    /// By a new instance in a launcher that has a free place for it.
    Warm,
    /// By a new instance that takes the place of others.
    Reclaim,
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    /// Bind this launcher, in which this many instances make way.
    Bind(&'a ActuationPod, Path, usize),
    /// Wait until this launcher is unbound: it has the instance.
    AwaitUnbinding(&'a ActuationPod),
    /// Wait until this launcher is ready or has answered.
    AwaitReady(&'a ActuationPod),
    /// Create a launcher.
    Create,
}

/// Chooses among the launchers of a node whose template is the current one.
#[must_use]
pub fn select<'a>(candidates: &[Candidate<'a>], wanted: Wanted<'_>) -> Selection<'a> {
    let (mut warm, mut unready, mut unbinding) = (None, None, None);
    let mut reclaim: Option<(_, &ActuationPod, usize)> = None;
    for candidate in candidates {
        let launcher = candidate.launcher;
        if launcher.is_terminal() || launcher.metadata.is_terminating() {
            continue;
        }
        let is_bound = launcher.binding().is_some();
        let instance = candidate.state.and_then(|it| it.instance(wanted.id));
        let is_hot = instance.is_some_and(|it| !it.is_stopped);
        if is_bound {
            let recorded = launcher.annotation(crate::labels::INSTANCE_ID_ANNOTATION);
            if candidate.is_unbinding && (is_hot || recorded == Some(wanted.id)) {
                unbinding = unbinding.or(Some(launcher));
            }
            continue;
        }
        let Some(state) = candidate.state.filter(|_| launcher.is_ready()) else {
            unready = unready.or(Some(launcher));
            continue;
        };
        if is_hot {
            return Selection::Bind(launcher, Path::Hot, 0);
        }
        let victims = victims(launcher, state, wanted);
        if victims.is_empty() {
            warm = warm.or(Some(launcher));
            continue;
        }
        let uses = InstanceUse::read(launcher);
        let oldest = victims.iter().map(|it| uses.of(launcher, &it.id)).min();
        let least = victims.iter().map(|it| it.id.as_str()).min().unwrap_or_default();
        let rank = (std::cmp::Reverse(victims.len()), oldest, least.to_owned());
        if reclaim.as_ref().is_none_or(|(best, ..)| rank < *best) {
            reclaim = Some((rank, launcher, victims.len()));
        }
    }
    match (unbinding, warm, reclaim, unready) {
        (Some(launcher), ..) => Selection::AwaitUnbinding(launcher),
        (_, Some(launcher), ..) => Selection::Bind(launcher, Path::Warm, 0),
        (_, _, Some((_, launcher, count)), _) => Selection::Bind(launcher, Path::Reclaim, count),
        (.., Some(launcher)) => Selection::AwaitReady(launcher),
        (None, None, None, None) => Selection::Create,
    }
}

/// Why no launcher serves better than the selected path, launcher by launcher.
///
/// `stale` counts the launchers of the node that have another template.
#[must_use]
pub fn shortfalls(candidates: &[Candidate<'_>], wanted: Wanted<'_>, stale: usize) -> String {
    let mut texts: Vec<String> = candidates.iter().filter_map(|it| shortfall(it, wanted)).collect();
    match stale {
        0 => {}
        1 => texts.push("one launcher has an older template".to_owned()),
        _ => texts.push(format!("{stale} launchers have an older template")),
    }
    match texts.is_empty() {
        true => "the node has no launcher of its LauncherConfig".to_owned(),
        false => texts.join("; "),
    }
}

/// Why a launcher cannot serve by waking, or by starting, an instance.
fn shortfall(candidate: &Candidate<'_>, wanted: Wanted<'_>) -> Option<String> {
    let launcher = candidate.launcher;
    let name = &launcher.metadata.name;
    if launcher.is_terminal() || launcher.metadata.is_terminating() {
        return Some(format!("launcher {name} has ended or is being deleted"));
    }
    if let Some(binding) = launcher.binding() {
        return Some(format!("launcher {name} is bound to requester {}", binding.name));
    }
    let Some(state) = candidate.state.filter(|_| launcher.is_ready()) else {
        return Some(format!("launcher {name} is not ready"));
    };
    match state.instance(wanted.id) {
        Some(it) if !it.is_stopped => return None,
        Some(_) => return Some(format!("launcher {name}: the instance has ended")),
        None => {}
    }
    let victims = victims(launcher, state, wanted);
    let same = state.instances.iter().find(|it| it.config.as_deref() == Some(wanted.config));
    let why = match same {
        Some(it) if it.gpu_uuids == wanted.accelerators => {
            format!("has {} of an older InferenceServerConfig", it.id)
        }
        Some(it) => format!("has it on other accelerators ({})", it.gpu_uuids.join(",")),
        None => "has no such instance".to_owned(),
    };
    let port = victims.iter().filter(|it| it.port == Some(wanted.port)).count();
    let place = match victims.len() {
        0 => String::new(),
        _ if port > 0 => format!(", and port {} is in use", wanted.port),
        _ => format!(", and its {} instances are the most", wanted.max_instances),
    };
    Some(format!("launcher {name} {why}{place}"))
}

/// The instances that must be deleted before the wanted one is created: those on its port, those
/// without a port, and the least recently used ones beyond the launcher's maximum.
#[must_use]
pub fn victims<'a>(
    launcher: &ActuationPod,
    state: &'a LauncherState,
    wanted: Wanted<'_>,
) -> Vec<&'a InstanceState> {
    let others = state.instances.iter().filter(|it| !it.is_stopped && it.id != wanted.id);
    let (mut victims, mut kept): (Vec<&InstanceState>, Vec<&InstanceState>) =
        others.partition(|it| it.port.is_none_or(|port| port == wanted.port));
    let uses = InstanceUse::read(launcher);
    let key =
        |it: &&InstanceState| -> (Timestamp, String) { (uses.of(launcher, &it.id), it.id.clone()) };
    kept.sort_by_key(key);
    let most = wanted.max_instances.saturating_sub(1);
    let excess = kept.len().saturating_sub(most);
    victims.extend(kept.drain(..excess));
    victims
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn launcher(name: &str, bound: bool) -> ActuationPod {
        let requester = if bound { "u9 r9" } else { "" };
        let uses = json!({"Ia": "2027-01-01T00:00:03Z", "Ib": "2027-01-01T00:00:02Z"}).to_string();
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": name, "uid": name,
                "creationTimestamp": "2027-01-01T00:00:00Z",
                "labels": {"dual-pods.llm-d.ai/launcher-config-name": "lc"},
                "annotations": {
                    "dual-pods.llm-d.ai/requester": requester,
                    "actuation.gantry.dev/instance-use": uses,
                },
            },
            "status": {"podIP": "10.0.0.1", "phase": "Running",
                       "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    fn state(instances: &[(&str, u16)]) -> LauncherState {
        let instances = instances.iter().map(|(id, port)| InstanceState {
            id: (*id).to_owned(),
            port: Some(*port).filter(|it| *it > 0),
            ..InstanceState::default()
        });
        LauncherState { boot: None, instances: instances.collect() }
    }

    fn wanted(id: &str, port: u16) -> Wanted<'_> {
        Wanted { id, port, max_instances: 2, config: "m", accelerators: &[] }
    }

    #[test]
    fn as_83_explanations_name_what_each_launcher_lacks() {
        let (a, b, bound) = (launcher("a", false), launcher("b", false), launcher("c", true));
        let full = state(&[("Ia", 2), ("Ib", 3)]);
        let mut other = state(&[("Ix", 1)]);
        other.instances[0].config = Some("m".to_owned());
        other.instances[0].gpu_uuids = vec!["g9".to_owned()];
        let candidate = |launcher, state| Candidate { launcher, state, is_unbinding: false };
        let candidates =
            [candidate(&a, Some(&full)), candidate(&b, Some(&other)), candidate(&bound, None)];
        assert_eq!(
            shortfalls(&candidates, wanted("I", 1), 1),
            "launcher a has no such instance, and its 2 instances are the most; launcher b has it \
             on other accelerators (g9), and port 1 is in use; launcher c is bound to requester \
             r9; one launcher has an older template"
        );
        let text = shortfalls(&[], wanted("I", 1), 0);
        assert_eq!(text, "the node has no launcher of its LauncherConfig");
    }

    fn outcome(
        list: &[(&ActuationPod, Option<&LauncherState>, bool)],
        id: &str,
        port: u16,
    ) -> String {
        let candidates: Vec<Candidate<'_>> = list
            .iter()
            .map(|(launcher, state, is_unbinding)| Candidate {
                launcher,
                state: *state,
                is_unbinding: *is_unbinding,
            })
            .collect();
        match select(&candidates, wanted(id, port)) {
            Selection::Bind(it, path, _) => format!("{path:?} {}", it.metadata.name),
            Selection::AwaitUnbinding(it) => format!("unbinding {}", it.metadata.name),
            Selection::AwaitReady(it) => format!("ready {}", it.metadata.name),
            Selection::Create => "create".to_owned(),
        }
    }

    #[test]
    fn as_24_to_27_paths_in_order_of_preference() {
        let (a, b, bound) = (launcher("a", false), launcher("b", false), launcher("c", true));
        let (empty, hot, full) = (state(&[]), state(&[("I", 1)]), state(&[("Ia", 2), ("Ib", 3)]));
        let clash = state(&[("Ix", 1)]);
        let table = [
            (vec![(&a, Some(&empty), false), (&b, Some(&hot), false)], "Hot b"),
            (vec![(&a, Some(&full), false), (&b, Some(&empty), false)], "Warm b"),
            (vec![(&a, Some(&full), false)], "Reclaim a"),
            (vec![(&a, Some(&clash), false), (&b, None, false)], "Reclaim a"),
            (vec![(&a, None, false)], "ready a"),
            (vec![(&bound, Some(&hot), false)], "create"),
            (vec![(&bound, Some(&hot), true)], "unbinding c"),
            (vec![(&a, Some(&empty), false), (&bound, Some(&hot), true)], "unbinding c"),
            (vec![(&bound, Some(&hot), true), (&b, Some(&hot), false)], "Hot b"),
            (vec![(&bound, Some(&empty), true)], "create"),
            (vec![], "create"),
        ];
        for (candidates, expected) in table {
            assert_eq!(outcome(&candidates, "I", 1), expected, "{candidates:?}");
        }
    }

    #[test]
    fn as_27_least_recently_used_instances_make_way() {
        let launcher = launcher("a", false);
        let ids = |state: &LauncherState, port: u16| -> Vec<String> {
            victims(&launcher, state, wanted("I", port)).iter().map(|it| it.id.clone()).collect()
        };
        assert_eq!(ids(&state(&[("Ia", 2), ("Ib", 3)]), 1), ["Ib"]);
        assert_eq!(ids(&state(&[("Ia", 2), ("Ib", 3)]), 2), ["Ia"], "the port is needed");
        assert_eq!(ids(&state(&[("Ia", 0)]), 2), ["Ia"], "nobody can reach it");
        assert_eq!(ids(&state(&[("Ia", 2)]), 3), [] as [&str; 0]);
        assert_eq!(ids(&state(&[("Ix", 4), ("Ia", 2), ("Ib", 3)]), 1), ["Ix", "Ib"]);
    }
}
