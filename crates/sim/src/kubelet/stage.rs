//! How long the stages of a pod take, and which failures its annotations ask for.

use std::collections::BTreeMap;

use gantry_reconcile::Meta;
use jiff::SignedDuration;

use super::{Settings, annotation};
use crate::view::Pod;
use gantry_kube_controllers::deterministic_random;

/// How long the stages of a pod take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// No time at all.
    #[default]
    Fast,
    /// One to five seconds for each stage, as on a machine that has the images.
    General,
}

/// A stage of a pod, with the name that annotations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The node admits the pod: `pod-create`.
    Create,
    /// An init container starts: `pod-init-container-running`.
    InitRunning,
    /// An init container ends: `pod-init-container-completed`.
    InitCompleted,
    /// The containers start: `pod-ready`.
    Ready,
    /// The containers of a pod that completes exit: `pod-complete`.
    Complete,
    /// The containers stop because the pod is deleted: `pod-delete`.
    Delete,
}

impl Stage {
    /// Returns the name as annotations spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "pod-create",
            Self::InitRunning => "pod-init-container-running",
            Self::InitCompleted => "pod-init-container-completed",
            Self::Ready => "pod-ready",
            Self::Complete => "pod-complete",
            Self::Delete => "pod-delete",
        }
    }

    /// Returns the shortest and the longest duration.
    fn duration_range(self, profile: Profile) -> (SignedDuration, SignedDuration) {
        let seconds = match (profile, self) {
            (Profile::Fast, _) => (0, 0),
            (Profile::General, Self::Delete) => (1, 1),
            (
                Profile::General,
                Self::Create
                | Self::InitRunning
                | Self::InitCompleted
                | Self::Ready
                | Self::Complete,
            ) => (1, 5),
        };
        (SignedDuration::from_secs(seconds.0), SignedDuration::from_secs(seconds.1))
    }
}

/// The simulation settings in a pod's annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SimulationAnnotations {
    /// Containers fail after this time.
    pub(super) crash_after: Option<SignedDuration>,
    /// Containers complete after this time.
    pub(super) run_for: Option<SignedDuration>,
    /// The exit codes by run; the last one applies to all further runs.
    pub(super) exit_codes: Vec<i64>,
    /// Why images cannot be pulled.
    pub(super) pull_error: Option<String>,
    /// Whether containers never become ready.
    pub(super) never_ready: bool,
    /// The restart count up to which runs are killed.
    pub(super) killed_run: Option<i64>,
    /// Messages about annotations that cannot be parsed.
    pub(super) unreadable: Vec<String>,
}

impl SimulationAnnotations {
    pub(super) fn parse(annotations: &BTreeMap<String, String>) -> Self {
        let mut parsed = Self::default();
        for (name, value) in annotations {
            let value = value.as_str();
            let bad = |form: &str| format!("annotation {name} is {value:?}: write {form}");
            match name.as_str() {
                annotation::CRASH_AFTER => match parse_duration(value) {
                    Some(it) => parsed.crash_after = Some(it),
                    None => parsed.unreadable.push(bad("a duration such as 5s")),
                },
                annotation::RUN_FOR => match parse_duration(value) {
                    Some(it) => parsed.run_for = Some(it),
                    None => parsed.unreadable.push(bad("a duration such as 5s")),
                },
                annotation::EXIT_CODE => {
                    let codes = value.split(',').map(|it| it.trim().parse::<u8>().map(i64::from));
                    match codes.collect::<Result<Vec<i64>, _>>() {
                        Ok(codes) => parsed.exit_codes = codes,
                        Err(_) => parsed.unreadable.push(bad("codes from 0 to 255 such as 1,0")),
                    }
                }
                annotation::PULL_ERROR => match value {
                    "" | "false" => {}
                    "true" => parsed.pull_error = Some("image cannot be pulled".to_owned()),
                    why => parsed.pull_error = Some(why.to_owned()),
                },
                annotation::NEVER_READY => match value {
                    "true" => parsed.never_ready = true,
                    "" | "false" => {}
                    _ => parsed.unreadable.push(bad("true or false")),
                },
                annotation::KILL => match value.trim().parse::<u32>() {
                    Ok(run) => parsed.killed_run = Some(run.into()),
                    Err(_) => parsed.unreadable.push(bad("a restart count such as 0")),
                },
                stage if is_delay(stage) && parse_duration(value).is_none() => {
                    parsed.unreadable.push(bad("a duration such as 5s"));
                }
                _ => {}
            }
        }
        parsed
    }

    /// Returns the annotations without effect on a pod whose containers are all programs, which
    /// exit by themselves.
    pub(super) fn ignored_annotations(&self, settings: &Settings, pod: &Pod) -> Option<String> {
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let given = [
            (annotation::RUN_FOR, self.run_for.is_some()),
            (annotation::CRASH_AFTER, self.crash_after.is_some()),
            (annotation::EXIT_CODE, !self.exit_codes.is_empty()),
        ];
        let given: Vec<&str> = given.iter().filter(|it| it.1).map(|it| it.0).collect();
        if given.is_empty() || !all.all(|it| settings.is_program(it)) {
            return None;
        }
        Some(format!(
            "{} has no effect: all containers of this pod run programs, which end by themselves; \
             remove it, or end a run with {}",
            given.join(", "),
            annotation::KILL
        ))
    }

    /// Returns whether a run of a container is to be killed.
    pub(super) fn kills_run(&self, run: i64) -> bool {
        self.killed_run.is_some_and(|it| run <= it)
    }

    /// Returns the exit code of a run that exits by itself.
    pub(super) fn exit_code(&self, run: i64) -> Option<i64> {
        let at = usize::try_from(run).unwrap_or_default();
        self.exit_codes.get(at).or_else(|| self.exit_codes.last()).copied()
    }
}

/// Returns whether an annotation sets the duration of a stage.
fn is_delay(annotation: &str) -> bool {
    let of_stage = annotation.split_once(".stage.kwok.x-k8s.io/");
    of_stage.is_some_and(|(_, what)| matches!(what, "delay" | "jitter-delay"))
}

/// Returns how long a stage of a pod takes. `drawn_for` distinguishes the repetitions of one stage.
pub(super) fn delay(profile: Profile, pod: &Meta, stage: Stage, drawn_for: &str) -> SignedDuration {
    let said = |what: &str| {
        let name = format!("{}.stage.kwok.x-k8s.io/{what}", stage.as_str());
        pod.annotations.get(&name).and_then(|it| parse_duration(it))
    };
    let (mut least, mut most) = stage.duration_range(profile);
    // Most pods have no such annotation: do not build names to look up.
    if pod.annotations.keys().any(|it| is_delay(it)) {
        let delay = said("delay");
        let jitter = said("jitter-delay");
        // A delay without a jitter delay is exact.
        most = jitter.or(delay).unwrap_or(most);
        least = delay.unwrap_or(least);
    }
    let spread = u64::try_from((most - least).as_millis()).unwrap_or_default();
    let drawn =
        deterministic_random::draw_below(spread, &[pod.uid.as_str(), stage.as_str(), drawn_for]);
    least + SignedDuration::from_millis(i64::try_from(drawn).unwrap_or_default())
}

/// Parses a duration as Go writes it: `300ms`, `1m30s`, `1.5h`.
fn parse_duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut sum = SignedDuration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(rest.len());
        let scale = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum = sum.checked_add(SignedDuration::try_from_secs_f64(number * scale).ok()?)?;
        rest = &rest[unit..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(annotations: &serde_json::Value) -> Meta {
        serde_json::from_value(json!({"uid": "u", "annotations": annotations})).unwrap()
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let table = [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("5s", Some(5000)),
            ("300ms", Some(300)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("", None),
            ("5", None),
            ("s", None),
            ("5x", None),
            ("-5s", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_duration(text).map(|it| it.as_millis()), expected, "{text:?}");
        }
    }

    #[test]
    fn stages_take_the_annotated_time() {
        let millis = |profile, annotations: serde_json::Value, stage| {
            let delay = delay(profile, &meta(&annotations), stage, "");
            i64::try_from(delay.as_millis()).unwrap()
        };
        let none = json!({});
        assert_eq!(millis(Profile::Fast, none.clone(), Stage::Ready), 0);
        assert!((1000..5000).contains(&millis(Profile::General, none.clone(), Stage::Ready)));
        assert_eq!(millis(Profile::General, none, Stage::Delete), 1000);
        let exact = json!({"pod-ready.stage.kwok.x-k8s.io/delay": "20s"});
        assert_eq!(millis(Profile::Fast, exact.clone(), Stage::Ready), 20_000);
        assert_eq!(millis(Profile::Fast, exact, Stage::Create), 0, "another stage");
        let spread = json!({"pod-ready.stage.kwok.x-k8s.io/delay": "2s",
                            "pod-ready.stage.kwok.x-k8s.io/jitter-delay": "3s"});
        assert!((2000..3000).contains(&millis(Profile::Fast, spread, Stage::Ready)));
    }

    #[test]
    fn unreadable_annotations_are_reported() {
        let read = |name: &str, value: &str| {
            SimulationAnnotations::parse(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
        };
        assert_eq!(read(annotation::EXIT_CODE, "1, 0").exit_codes, [1, 0]);
        let codes = read(annotation::EXIT_CODE, "1,0");
        assert_eq!([0, 1, 2].map(|run| codes.exit_code(run)), [Some(1), Some(0), Some(0)]);
        assert!(read(annotation::NEVER_READY, "true").never_ready);
        assert_eq!(read(annotation::PULL_ERROR, "no such tag").pull_error.unwrap(), "no such tag");
        let bad = [
            (annotation::EXIT_CODE, "x"),
            (annotation::RUN_FOR, "soon"),
            (annotation::CRASH_AFTER, ""),
            (annotation::NEVER_READY, "maybe"),
            (annotation::KILL, "now"),
            ("pod-ready.stage.kwok.x-k8s.io/delay", "1"),
        ];
        for (name, value) in bad {
            let errors = read(name, value).unreadable;
            assert!(errors.len() == 1 && errors[0].contains(name), "{name}: {errors:?}");
        }
    }
}
