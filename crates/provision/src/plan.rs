//! The plan of a run: what every selected step makes of every host.

use std::collections::BTreeSet;

use gantry_inventory::TagSelection;

use crate::state::{Observed, State, Want};
use crate::step::{Change, Context, Stage, Step, Verdict};

/// Which steps of a catalogue run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// By tag.
    pub tags: TagSelection,
    /// The first step; earlier ones do not run.
    pub start_at: Option<String>,
    /// Only steps that need the whole cluster.
    pub is_post_only: bool,
}

impl Selection {
    /// The steps that run. Facts are always gathered, since conditions need them.
    #[must_use]
    pub fn steps<'a>(&self, steps: &'a [Step]) -> Vec<&'a Step> {
        let from = self.start_at.as_deref();
        let from = from.and_then(|id| steps.iter().position(|step| step.id == id)).unwrap_or(0);
        let runs = |(index, step): &(usize, &Step)| {
            let is_selected = *index >= from && self.tags.runs(&step.tag_names());
            step.stage == Stage::Facts && !self.tags.skip.iter().any(|it| it == "facts")
                || is_selected && (!self.is_post_only || step.stage.is_post())
        };
        steps.iter().enumerate().filter(runs).map(|(_, step)| step).collect()
    }

    /// What is wrong with it: a tag or a step that does not exist.
    #[must_use]
    pub fn problem(&self, steps: &[Step]) -> Option<String> {
        let tags = tags(steps);
        let known: Vec<&str> = tags.iter().map(String::as_str).collect();
        if let Some(problem) = self.tags.unknown(&known) {
            return Some(problem);
        }
        let wanted = self.start_at.as_deref()?;
        let known: Vec<&str> = steps.iter().map(|step| step.id.as_ref()).collect();
        if known.contains(&wanted) {
            return None;
        }
        let hint = gantry_inventory::suggest(wanted, known.iter().copied());
        let hint = hint.map(|it| format!(" (did you mean `{it}`?)")).unwrap_or_default();
        Some(format!("no step is named `{wanted}`{hint}; see --list-tasks"))
    }
}

/// All tags of steps, sorted.
#[must_use]
pub fn tags(steps: &[Step]) -> Vec<String> {
    let tags: BTreeSet<&str> = steps.iter().flat_map(Step::tag_names).collect();
    tags.into_iter().map(str::to_owned).collect()
}

/// What a step makes of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStep {
    /// The step.
    pub step: String,
    /// The stage.
    pub stage: Stage,
    /// What it makes of the host.
    pub verdict: Verdict,
}

/// The plan of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPlan {
    /// The steps in their order.
    pub steps: Vec<PlannedStep>,
}

impl HostPlan {
    /// Whether nothing has to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes().next().is_none()
    }

    /// What has to be done, with the step that wants it.
    pub fn changes(&self) -> impl Iterator<Item = (&str, &Change)> {
        self.steps.iter().flat_map(|planned| {
            let changes = match &planned.verdict {
                Verdict::Change(changes) => changes.as_slice(),
                Verdict::Satisfied(_)
                | Verdict::Later(_)
                | Verdict::Skipped(_)
                | Verdict::Held(_)
                | Verdict::Failed { .. } => &[],
            };
            changes.iter().map(|change| (planned.step.as_str(), change))
        })
    }

    /// Steps that cannot run, with the reason.
    #[must_use]
    pub fn held(&self) -> Vec<(&str, &str)> {
        let held = self.steps.iter().filter_map(|planned| match &planned.verdict {
            Verdict::Held(reason) => Some((planned.step.as_str(), reason.as_str())),
            Verdict::Satisfied(_)
            | Verdict::Change(_)
            | Verdict::Later(_)
            | Verdict::Skipped(_)
            | Verdict::Failed { .. } => None,
        });
        held.collect()
    }
}

/// Everything that has to be observed for the steps of a stage, in one round trip. For diffs the
/// texts of files are observed, too.
#[must_use]
pub fn wants(steps: &[&Step], stage: Stage, context: &Context<'_>, with_texts: bool) -> Vec<Want> {
    let of_stage = steps.iter().filter(|step| step.stage == stage);
    let mut wants: BTreeSet<Want> = of_stage.flat_map(|step| step.wants(context)).collect();
    if with_texts {
        let text = |want: &Want| match want {
            Want::Path(path) => Some(Want::Text(path.clone())),
            Want::Text(_)
            | Want::Package(_)
            | Want::Unit(_)
            | Want::Sysctl(_)
            | Want::Module(_)
            | Want::Mount(_)
            | Want::Image(_)
            | Want::Port(_)
            | Want::Swap => None,
        };
        let texts: Vec<Want> = wants.iter().filter_map(text).collect();
        wants.extend(texts);
    }
    wants.into_iter().collect()
}

/// Plans the steps of a stage for a host.
#[must_use]
pub fn plan_stage(
    steps: &[&Step],
    stage: Stage,
    context: &Context<'_>,
    observed: &Observed,
) -> HostPlan {
    let planned = |step: &&Step| PlannedStep {
        step: step.id.to_string(),
        stage,
        verdict: step.plan(context, observed),
    };
    let of_stage = steps.iter().filter(|step| step.stage == stage);
    HostPlan { steps: of_stage.map(planned).collect() }
}

/// Lines around a change in a diff.
const DIFF_CONTEXT: usize = 3;

/// How a change of a file differs from what is there. Contents that are secret, or that only their
/// owner can read, are shown as digests.
#[must_use]
pub fn diff(change: &Change, observed: &Observed) -> Option<String> {
    let crate::action::Action::File { path, digest, mode, secret } = &change.action else {
        return None;
    };
    let current = observed.get(&Want::Path(path.clone()));
    let is_private = |mode: u32| mode & 0o077 == 0;
    let (old, was_private) = match current {
        State::File { digest, mode, .. } => (Some(digest.short()), is_private(*mode)),
        _ => (None, false),
    };
    let text = |it: &[u8]| std::str::from_utf8(it).ok().map(str::to_owned);
    let new = change.content.as_ref().and_then(|it| text(it.bytes()));
    let before = match (observed.get(&Want::Text(path.clone())), old) {
        (State::Text { text }, _) => Some(text.as_str()),
        (_, None) => Some(""),
        (_, Some(_)) => None,
    };
    match (new, before) {
        (Some(new), Some(before)) if !*secret && !is_private(*mode) && !was_private => {
            let diff = similar::TextDiff::from_lines(before, &new);
            let mut unified = diff.unified_diff();
            unified.context_radius(DIFF_CONTEXT);
            Some(unified.header(&format!("before: {path}"), &format!("after: {path}")).to_string())
        }
        _ => {
            let word = if *secret || is_private(*mode) || was_private { "secret " } else { "" };
            let old = old.map_or_else(|| "absent".to_owned(), |it| format!("«{word}sha256:{it}…»"));
            Some(format!("{path}: {old} -> «{word}sha256:{}…»\n", digest.short()))
        }
    }
}
