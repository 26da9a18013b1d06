//! Decides whether the author of an AppWrapper may create what it wraps, as far as that is known.
//!
//! [`AccessReviewer`] asks the API server, and [`RecordingCheck`] asks whether it has authors
//! recorded at all. The answers are facts: an [`AccessReview`] for each author, namespace and
//! permission, and [`AuthorRecording`]. Answers are valid for a short time, so that granting and
//! revoking permissions takes effect.

use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::fact::TypedFactChange;
use gantry_reconcile::{Fact, FactKind, Key, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::app_wrapper::AppWrapper;
use crate::author::{Author, CONFIGURATION, SOURCE_ANNOTATION};
use crate::condition::{BackoffReason, QueueCondition};
use crate::settings::UserAccess;

mod inquiries;
mod permission;

pub use inquiries::{AccessReviewer, RecordingCheck};
pub use permission::{RequiredPermission, ResourceAttributes};

/// For how long an allowed review is valid.
const ALLOWED_VALIDITY: Duration = Duration::from_secs(30);
/// For how long a denied review is valid, and that a kind does not exist. An AppWrapper that is
/// denied fails at once.
const DENIED_VALIDITY: Duration = Duration::from_secs(10);
/// The precision of creation timestamps on API servers.
const CREATION_TIME_PRECISION: Duration = Duration::from_secs(1);
/// How long it takes until every replica of an API server calls a newly configured webhook.
const WEBHOOK_PROPAGATION_DELAY: Duration = Duration::from_secs(5);

/// The answer of an API server about a permission of an author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessReview {
    /// The author may.
    Allowed,
    /// The author may not.
    Denied {
        /// What was asked.
        asked: ResourceAttributes,
        /// Why, where the server says that.
        reason: String,
    },
    /// There is no such kind, so there is nothing to allow.
    NoSuchKind,
}

impl Fact for AccessReview {
    type Subject = AccessQuestion;
    const NAME: &'static str = "access-review";
}

impl AccessReview {
    /// Reads the answer to a SubjectAccessReview.
    #[must_use]
    pub fn read(answer: &Value, asked: ResourceAttributes) -> Self {
        let text = |name: &str| answer["status"][name].as_str().unwrap_or_default().to_owned();
        if answer["status"]["allowed"] == true {
            return Self::Allowed;
        }
        // An evaluation error explains why a role has no effect: a user that creates the object
        // itself gets the same text.
        let words = [text("reason"), text("evaluationError")];
        let words: Vec<&str> =
            words.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        Self::Denied { asked, reason: words.join(": ") }
    }
}

/// Since when the API server has the author of each AppWrapper recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorRecording {
    /// The start of recording; absent while authors are not recorded.
    pub since: Option<Timestamp>,
}

impl Fact for AuthorRecording {
    /// There is one API server.
    type Subject = ();
    const NAME: &'static str = "author-recording";
}

impl AuthorRecording {
    /// Reads the webhook configuration that makes the server record authors.
    #[must_use]
    pub fn read(configuration: &Value) -> Self {
        let metadata = &configuration["metadata"];
        let made = metadata["creationTimestamp"].as_str().and_then(|it| it.parse().ok());
        let since = made.and_then(|made: Timestamp| {
            match metadata["annotations"][SOURCE_ANNOTATION].is_string() {
                // A server that configures itself, in one process, records at once.
                true => Some(made),
                false => made.checked_add(WEBHOOK_PROPAGATION_DELAY).ok(),
            }
        });
        Self { since }
    }
}

/// Returns the kinds of facts that decisions depend on.
#[must_use]
pub fn facts() -> [FactKind; 2] {
    [FactKind::of::<AccessReview>(), FactKind::of::<AuthorRecording>()]
}

/// A question to an API server: may this author do this?
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessQuestion {
    /// The author, as AppWrappers name it. The questions of one AppWrapper share it: it may be
    /// long.
    pub author: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The permission.
    pub permission: RequiredPermission,
}

/// Why an AppWrapper is not authorized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationProblem {
    /// Its author is not recorded.
    #[error("its author is not recorded, so its permissions cannot be checked; create it again")]
    AuthorNotRecorded,
    /// It may name an author, but any user could have written that.
    #[error(
        "it was created before {since}, when authors began to be recorded, so the permissions of \
         its author cannot be checked; create it again"
    )]
    CreatedBeforeRecording {
        /// Since when authors are recorded.
        since: Timestamp,
    },
    /// Authors are not recorded.
    #[error(
        "authors are not recorded: there is no MutatingWebhookConfiguration \"{CONFIGURATION}\", \
         or it cannot be read; the operator creates it, if 45-check-user-access.yaml is applied"
    )]
    RecordingDisabled,
    /// Whether its author may create it is not known yet.
    #[error("whether user \"{user}\" may {need} in the namespace \"{namespace}\" is being checked")]
    ReviewPending {
        /// The author.
        user: String,
        /// The required permission.
        need: RequiredPermission,
        /// The namespace.
        namespace: String,
    },
    /// The access review failed.
    #[error(
        "could not ask whether user \"{user}\" may {need} in the namespace \"{namespace}\": {why}"
    )]
    ReviewFailed {
        /// The author.
        user: String,
        /// The required permission.
        need: RequiredPermission,
        /// The namespace.
        namespace: String,
        /// The error.
        why: String,
    },
    /// Its author may not create one of its items.
    #[error(
        "user \"{user}\" cannot {asked} in the namespace \"{namespace}\"{reason}; have the \
         permission granted, then create the AppWrapper again"
    )]
    Denied {
        /// The author.
        user: String,
        /// What the author may not do.
        asked: Box<ResourceAttributes>,
        /// The namespace.
        namespace: String,
        /// What the server said, after a colon.
        reason: String,
    },
}

/// Held reasons, for programs.
pub(crate) mod reason {
    pub(crate) const UNSETTLED: &str = "AccessUnsettled";
    pub(crate) const DENIED: &str = "AccessDenied";
}

impl AuthorizationProblem {
    /// Returns the reason, for programs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::AuthorNotRecorded | Self::CreatedBeforeRecording { .. } => {
                QueueCondition::Backoff(BackoffReason::Author).reason().unwrap_or_default()
            }
            Self::RecordingDisabled | Self::ReviewPending { .. } | Self::ReviewFailed { .. } => {
                reason::UNSETTLED
            }
            Self::Denied { .. } => reason::DENIED,
        }
    }

    /// Returns whether it has no recorded author, which only its users can change.
    #[must_use]
    pub fn has_no_author(&self) -> bool {
        match self {
            Self::AuthorNotRecorded | Self::CreatedBeforeRecording { .. } => true,
            Self::RecordingDisabled
            | Self::ReviewPending { .. }
            | Self::ReviewFailed { .. }
            | Self::Denied { .. } => false,
        }
    }

    /// Returns whether it may still turn out to be allowed.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        match self {
            Self::RecordingDisabled | Self::ReviewPending { .. } | Self::ReviewFailed { .. } => {
                true
            }
            Self::AuthorNotRecorded | Self::CreatedBeforeRecording { .. } | Self::Denied { .. } => {
                false
            }
        }
    }
}

/// Checks whether an AppWrapper may be admitted: its author may create all of its items whose kinds
/// exist. A kind that does not exist is reported when its items are created.
///
/// # Errors
/// Why it may not.
pub fn may_admit(
    world: &World,
    wrapper: &AppWrapper,
    access: UserAccess,
    now: Timestamp,
) -> Result<(), AuthorizationProblem> {
    check_access(world, wrapper, access, now, true)
}

/// Checks whether the items of an admitted AppWrapper may be created. Kinds may have been installed
/// since.
///
/// # Errors
/// Why they may not.
pub fn may_create(
    world: &World,
    wrapper: &AppWrapper,
    access: UserAccess,
    now: Timestamp,
) -> Result<(), AuthorizationProblem> {
    check_access(world, wrapper, access, now, false)
}

fn check_access(
    world: &World,
    wrapper: &AppWrapper,
    access: UserAccess,
    now: Timestamp,
    without_kind: bool,
) -> Result<(), AuthorizationProblem> {
    let since = recorded_since(world).ok_or(AuthorizationProblem::RecordingDisabled)?;
    let text = wrapper.author().ok_or(AuthorizationProblem::AuthorNotRecorded)?;
    let made = wrapper.metadata.creation_timestamp.unwrap_or(Timestamp::MIN);
    if made < since {
        return Err(AuthorizationProblem::CreatedBeforeRecording { since });
    }
    let author = Author::read(text).ok_or(AuthorizationProblem::AuthorNotRecorded)?;
    let user = &author.username;
    let reviews = world.facts::<AccessReview>();
    let mut open = None;
    for question in questions_of(wrapper, text, access) {
        let state = reviews.get(&question);
        let review = state.as_ref().and_then(|it| it.observed.as_ref());
        let review = review.filter(|it| is_review_valid(&it.value, it.at, wrapper, now));
        let failure = state.as_ref().and_then(|it| it.failure.as_ref());
        let AccessQuestion { permission: need, namespace, .. } = question;
        let (user, namespace) = (user.clone(), namespace.to_string());
        match review.map(|it| it.value.clone()) {
            Some(AccessReview::Allowed) => {}
            Some(AccessReview::NoSuchKind) if without_kind => {}
            Some(AccessReview::Denied { asked, reason }) => {
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                let asked = Box::new(asked);
                return Err(AuthorizationProblem::Denied { user, asked, namespace, reason });
            }
            Some(AccessReview::NoSuchKind) | None => match failure {
                Some(failure) => {
                    let why = failure.message.clone();
                    open = Some(AuthorizationProblem::ReviewFailed { user, need, namespace, why });
                }
                None => {
                    open.get_or_insert(AuthorizationProblem::ReviewPending {
                        user,
                        need,
                        namespace,
                    });
                }
            },
        }
    }
    open.map_or(Ok(()), Err)
}

/// Returns since when authors are recorded, if that is known.
pub(crate) fn recorded_since(world: &World) -> Option<Timestamp> {
    world.facts::<AuthorRecording>().observed(&())?.value.since
}

/// Returns whether the permissions of its author matter to an AppWrapper: it is pending, or its
/// items are being created.
fn needs_access_review(wrapper: &AppWrapper) -> bool {
    wrapper.is_queued() || is_creating_items(wrapper)
}

/// Returns whether an AppWrapper is admitted and its items are being created.
fn is_creating_items(wrapper: &AppWrapper) -> bool {
    wrapper.status.can_run
        && wrapper.is_pending()
        && crate::state::removal_outcome(wrapper).is_none()
}

/// Returns what the server must be asked before the items of an AppWrapper can be created; empty
/// where the permissions of its author do not matter, or the author is unknown.
#[must_use]
pub fn questions(wrapper: &AppWrapper, access: UserAccess) -> Vec<AccessQuestion> {
    let author = wrapper.author().filter(|_| needs_access_review(wrapper));
    let author = author.filter(|it| Author::read(it).is_some());
    author.map(|it| questions_of(wrapper, it, access)).unwrap_or_default()
}

/// Returns all that an author must be allowed to do, each once and in order.
fn questions_of(wrapper: &AppWrapper, author: &str, access: UserAccess) -> Vec<AccessQuestion> {
    let mut needs: Vec<RequiredPermission> =
        wrapper.items().iter().flat_map(|it| RequiredPermission::of(it, access)).collect();
    needs.sort_unstable();
    needs.dedup();
    let (author, namespace) = (Arc::from(author), Arc::from(wrapper.metadata.namespace.as_str()));
    let question = |need| AccessQuestion {
        author: Arc::clone(&author),
        namespace: Arc::clone(&namespace),
        permission: need,
    };
    needs.into_iter().map(question).collect()
}

/// Returns whether an answer is valid for an AppWrapper at some time. An AppWrapper does not fail
/// because of an answer from before it was created: its author may have followed the advice to have
/// a permission granted and to create it again.
fn is_review_valid(
    review: &AccessReview,
    at: Timestamp,
    wrapper: &AppWrapper,
    now: Timestamp,
) -> bool {
    let lasts = |time: Duration| at.checked_add(time).is_ok_and(|until| now < until);
    match review {
        AccessReview::Allowed => lasts(ALLOWED_VALIDITY),
        AccessReview::NoSuchKind => lasts(DENIED_VALIDITY),
        AccessReview::Denied { .. } => {
            let made = wrapper.metadata.creation_timestamp.unwrap_or(Timestamp::MIN);
            let made = made.checked_add(CREATION_TIME_PRECISION);
            lasts(DENIED_VALIDITY) && made.is_ok_and(|made| made <= at)
        }
    }
}

/// Returns whether a change of a fact lets an AppWrapper proceed, or fail.
pub(crate) fn changes_authorization(change: &TypedFactChange<'_, AccessReview>) -> bool {
    let (before, Some(after)) = (change.before, change.after) else {
        // No AppWrapper needs it any more.
        return false;
    };
    let Some(observed) = after.observed.as_deref().filter(|_| after.failure.is_none()) else {
        return true;
    };
    match observed.value {
        // The same answer, renewed in time.
        AccessReview::Allowed => {
            let before = before.and_then(|it| it.observed.as_deref());
            let before = before.filter(|it| it.value == AccessReview::Allowed);
            let until = before.and_then(|it| it.at.checked_add(ALLOWED_VALIDITY).ok());
            until.is_none_or(|until| until <= observed.at)
        }
        AccessReview::Denied { .. } | AccessReview::NoSuchKind => true,
    }
}

/// Returns the AppWrappers whose own plans depend on a changed review. A pending one fails when it
/// is denied; everything else is up to the admission cycle.
pub(crate) fn affected_wrappers(
    world: &World,
    change: &TypedFactChange<'_, AccessReview>,
    access: UserAccess,
) -> Vec<Key> {
    if !changes_authorization(change) {
        return Vec::new();
    }
    let AccessQuestion { author, namespace, permission: need } = change.subject;
    let is_denied =
        matches!(change.after.and_then(|it| it.value()), Some(AccessReview::Denied { .. }));
    let wrappers = world.store::<AppWrapper>().by_index(&AppWrapper::author_tag(author));
    let concerned = wrappers.iter().filter(|it| {
        *it.metadata.namespace == **namespace
            && (is_creating_items(it) || is_denied && it.is_queued())
            && it
                .items()
                .iter()
                .flat_map(|it| RequiredPermission::of(it, access))
                .any(|it| it == *need)
    });
    concerned.map(|it| it.metadata.key()).collect()
}

#[cfg(test)]
mod tests;
