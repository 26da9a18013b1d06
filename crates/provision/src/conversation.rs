//! One host from its observation to its verification, over whatever carries requests.

use crate::bundle::BundleLock;
use crate::content::Digest;
use crate::frame::{Reply, Request};
use crate::journal::{Journal, JournalError};
use crate::plan::{HostPlan, plan_stage, wants};
use crate::state::Observed;
use crate::step::{Context, Stage, Step, Verdict};
use crate::undo::{UndoItem, UndoVerdict, undo};

/// Carries a request with its body to a host, and brings the reply.
pub trait Host {
    /// Asks once.
    ///
    /// # Errors
    /// No reply came; the request may or may not have been carried out.
    fn ask(&mut self, request: &Request, body: &[u8]) -> Result<Reply, Lost>;

    /// The bytes of a program or an image of the bundle.
    fn bundled(&self, digest: &Digest) -> Option<Vec<u8>>;
}

/// No reply came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not reach the host: {0}")]
pub struct Lost(pub String);

/// Why a host could not be brought where it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The connection was lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// An action failed.
    #[error("step {step}: {action}: {error}")]
    Action {
        /// The step.
        step: String,
        /// The action, in words.
        action: String,
        /// Why.
        error: String,
    },
    /// A step found the host unfit.
    #[error("step {step}: {message}; {remedy}")]
    Unfit {
        /// The step.
        step: String,
        /// What is wrong.
        message: String,
        /// What to do.
        remedy: String,
    },
    /// What was done is undone by something else again and again.
    #[error("step {0} did not take: after {MAX_PASSES} attempts there is still something to do")]
    DidNotTake(String),
    /// The host replied something else than what it was asked.
    #[error("could not understand the host: {0}")]
    Reply(String),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// How often a stage is planned: steps may depend on what earlier steps of the stage did.
pub const MAX_PASSES: usize = 5;

/// What is the same for all hosts of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The id.
    pub id: &'a str,
    /// The selected steps.
    pub steps: &'a [&'a Step],
    /// Whether nothing is changed.
    pub is_check: bool,
    /// The bundle.
    pub bundle: Option<&'a BundleLock>,
}

/// What was made of a host in a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageResult {
    /// The first plan, which is what check mode shows.
    pub plan: HostPlan,
    /// Steps that changed something, once each.
    pub changed: Vec<String>,
    /// What was left as it is, and why.
    pub notes: Vec<String>,
    /// The last plan: what is held, skipped or satisfied.
    pub end: HostPlan,
}

/// Observes resources of a host.
///
/// # Errors
/// The host is not reached, or cannot observe.
pub fn observe(
    host: &mut impl Host,
    wants: Vec<crate::state::Want>,
) -> Result<Observed, HostError> {
    match host.ask(&Request::Observe { wants }, &[])? {
        Reply::Observed { observed } => Ok(observed),
        Reply::Failed { error, .. } => Err(HostError::Reply(error)),
        other => Err(HostError::Reply(format!("{other:?}"))),
    }
}

/// Brings a host through a stage. In check mode nothing is changed, and the plan is what a run
/// would do first.
///
/// # Errors
/// The first step that fails ends the stage for this host.
pub fn run_stage(
    host: &mut impl Host,
    run: &Run<'_>,
    stage: Stage,
    context: &Context<'_>,
) -> Result<StageResult, HostError> {
    let mut result = StageResult::default();
    for pass in 0..MAX_PASSES {
        let wants = wants(run.steps, stage, context, false);
        // A stage that only reads facts needs no round trip.
        let observed = if wants.is_empty() { Observed::default() } else { observe(host, wants)? };
        let plan = plan_stage(run.steps, stage, context, &observed);
        if pass == 0 {
            result.plan = plan.clone();
        }
        for planned in &plan.steps {
            if let Verdict::Failed { message, remedy } = &planned.verdict {
                return Err(HostError::Unfit {
                    step: planned.step.clone(),
                    message: message.clone(),
                    remedy: remedy.clone(),
                });
            }
        }
        if run.is_check || plan.is_empty() {
            result.end = plan;
            return Ok(result);
        }
        for (step, change) in plan.changes() {
            let failed = |error: String| HostError::Action {
                step: step.to_owned(),
                action: change.action.to_string(),
                error,
            };
            let bundled = change.action.body().filter(|_| change.content.is_none());
            let bundled = match bundled {
                Some(digest) => {
                    let bytes = host.bundled(digest);
                    Some(bytes.ok_or_else(|| failed("the bundle has not its bytes".to_owned()))?)
                }
                None => None,
            };
            let own = change.content.as_ref().map(crate::content::Content::bytes);
            let body = bundled.as_deref().or(own);
            let request = Request::Act {
                cluster: context.settings.cluster.clone(),
                run: run.id.to_owned(),
                step: step.to_owned(),
                action: change.action.clone(),
            };
            match host.ask(&request, body.unwrap_or_default())? {
                Reply::Done { notes } => result.notes.extend(notes),
                Reply::Failed { error, .. } => return Err(failed(error)),
                other => return Err(HostError::Reply(format!("{other:?}"))),
            }
            if result.changed.last().is_none_or(|last| last != step)
                && !result.changed.iter().any(|it| it == step)
            {
                result.changed.push(step.to_owned());
            }
        }
        result.end = plan;
    }
    let step = result.end.changes().next().map(|(step, _)| step.to_owned()).unwrap_or_default();
    Err(HostError::DidNotTake(step))
}

/// Reads the journal of a cluster on a host.
///
/// # Errors
/// The host is not reached, or the journal is damaged.
pub fn read_journal(host: &mut impl Host, cluster: &str) -> Result<Option<Journal>, HostError> {
    match host.ask(&Request::Journal { cluster: cluster.to_owned() }, &[])? {
        Reply::Journal { text } => Ok(Journal::parse(&text)?),
        Reply::Failed { error, .. } => Err(HostError::Reply(error)),
        other => Err(HostError::Reply(format!("{other:?}"))),
    }
}

/// Undoes what the journal of a host has, the newest first, and removes the journal. Returns what
/// was found; what others changed stays as it is.
///
/// # Errors
/// The host is not reached, the journal is damaged, or an action fails.
pub fn destroy(host: &mut impl Host, cluster: &str) -> Result<Vec<UndoItem>, HostError> {
    let Some(journal) = read_journal(host, cluster)? else { return Ok(Vec::new()) };
    let observed = observe(host, crate::undo::wants(&journal))?;
    let items = undo(&journal, &observed);
    for (index, item) in items.iter().enumerate() {
        let actions = match &item.verdict {
            UndoVerdict::Play(actions) => actions.clone(),
            UndoVerdict::Changed { .. } | UndoVerdict::Irreversible(_) => Vec::new(),
        };
        let ends = items.iter().skip(index + 1).all(|it| it.sequence != item.sequence);
        let (cluster, sequence) = (cluster.to_owned(), item.sequence);
        match host.ask(&Request::Undo { cluster, sequence, actions, ends }, &[])? {
            Reply::Done { .. } => {}
            Reply::Failed { error, .. } => {
                let (step, action) = (item.step.clone(), format!("undo: {}", item.what));
                return Err(HostError::Action { step, action, error });
            }
            other => return Err(HostError::Reply(format!("{other:?}"))),
        }
    }
    match host.ask(&Request::Forget { cluster: cluster.to_owned() }, &[])? {
        Reply::Done { .. } => Ok(items),
        Reply::Failed { error, .. } => Err(HostError::Reply(error)),
        other => Err(HostError::Reply(format!("{other:?}"))),
    }
}
