//! Whether the author of an AppWrapper may create what it wraps, as far as that is known.
//!
//! The server is asked by [`AccessReviewer`], and whether it has authors recorded at all by [`RecordingCheck`].
//! What it said are facts: an [`AccessReview`] for each author, namespace and right, and [`AuthorRecording`].
//! Answers count for a short time, so that rights that are granted or revoked count.

use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::fact::Changed;
use gantry_reconcile::{Fact, FactKind, Key, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::app_wrapper::AppWrapper;
use crate::author::{Author, CONFIGURATION, SOURCE};
use crate::condition::{Entry, Pause};
use crate::settings::UserAccess;

mod inquiries;
mod need;

pub use inquiries::{AccessReviewer, RecordingCheck};
pub use need::{Attributes, Need};

/// For how long a yes counts.
const ALLOWED_VALIDITY: Duration = Duration::from_secs(30);
/// For how long a no counts, and that there is no such kind. An AppWrapper that is denied fails at once.
const DENIED_VALIDITY: Duration = Duration::from_secs(10);
/// What servers know of when an object was made is cut to seconds.
const CREATION_TIME_PRECISION: Duration = Duration::from_secs(1);
/// How long it takes until every replica of a server calls a webhook that was configured.
const WEBHOOK_PROPAGATION_DELAY: Duration = Duration::from_secs(5);

/// What a server says about a right of an author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessReview {
    /// The author may.
    Allowed,
    /// The author may not.
    Denied {
        /// What was asked.
        asked: Attributes,
        /// Why, where the server says that.
        reason: String,
    },
    /// There is no such kind, so there is nothing to be allowed.
    NoSuchKind,
}

impl Fact for AccessReview {
    type Subject = AccessQuestion;
    const NAME: &'static str = "access-review";
}

impl AccessReview {
    /// What a server answered to a SubjectAccessReview.
    #[must_use]
    pub fn read(answer: &Value, asked: Attributes) -> Self {
        let text = |name: &str| answer["status"][name].as_str().unwrap_or_default().to_owned();
        if answer["status"]["allowed"] == true {
            return Self::Allowed;
        }
        // What went wrong with a role is why it does not count: who asks for the object itself is told the same.
        let words = [text("reason"), text("evaluationError")];
        let words: Vec<&str> =
            words.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        Self::Denied { asked, reason: words.join(": ") }
    }
}

/// Since when the server has the author of each AppWrapper recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorRecording {
    /// Since when; absent while it does not.
    pub since: Option<Timestamp>,
}

impl Fact for AuthorRecording {
    /// There is one server.
    type Subject = ();
    const NAME: &'static str = "author-recording";
}

impl AuthorRecording {
    /// What the webhook configuration says that tells the server to have authors recorded.
    #[must_use]
    pub fn read(configuration: &Value) -> Self {
        let metadata = &configuration["metadata"];
        let made = metadata["creationTimestamp"].as_str().and_then(|it| it.parse().ok());
        let since =
            made.and_then(|made: Timestamp| match metadata["annotations"][SOURCE].is_string() {
                // A server that configured itself, in one process, does it at once.
                true => Some(made),
                false => made.checked_add(WEBHOOK_PROPAGATION_DELAY).ok(),
            });
        Self { since }
    }
}

/// The facts that are decided by.
#[must_use]
pub fn facts() -> [FactKind; 2] {
    [FactKind::of::<AccessReview>(), FactKind::of::<AuthorRecording>()]
}

/// What a server is to be asked: may this author do this?
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessQuestion {
    /// The author, as AppWrappers name it. The questions of one AppWrapper share it: it may be long.
    pub author: Arc<str>,
    /// Where.
    pub namespace: Arc<str>,
    /// What.
    pub need: Need,
}

/// Why an AppWrapper is kept back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeptBack {
    /// It has no author.
    #[error(
        "who made it is not recorded, so nobody can say what its author may create; create it anew"
    )]
    Unrecorded,
    /// It may name an author, but anybody could have written that.
    #[error(
        "it was made before {since}, when authors began to be recorded, so nobody can say what its \
         author may create; create it anew"
    )]
    Older {
        /// Since when authors are recorded.
        since: Timestamp,
    },
    /// Authors are not recorded.
    #[error(
        "authors are not recorded: there is no MutatingWebhookConfiguration \"{CONFIGURATION}\", or it \
         cannot be read; the operator makes it, with the rights of 45-check-user-access.yaml"
    )]
    NotRecording,
    /// What its author may create is not known yet.
    #[error(
        "whether user \"{user}\" may {need} in the namespace \"{namespace}\" is being found out"
    )]
    Open {
        /// The author.
        user: String,
        /// What it takes.
        need: Need,
        /// Where.
        namespace: String,
    },
    /// That cannot be found out.
    #[error(
        "could not ask whether user \"{user}\" may {need} in the namespace \"{namespace}\": {why}"
    )]
    Unanswered {
        /// The author.
        user: String,
        /// What it takes.
        need: Need,
        /// Where.
        namespace: String,
        /// Why not.
        why: String,
    },
    /// Its author may not create one of its items.
    #[error(
        "user \"{user}\" cannot {asked} in the namespace \"{namespace}\"{reason}; have the right \
         granted, then create the AppWrapper anew"
    )]
    Denied {
        /// The author.
        user: String,
        /// What the author may not do.
        asked: Box<Attributes>,
        /// Where.
        namespace: String,
        /// What the server said, after a colon.
        reason: String,
    },
}

/// Reasons of what is held, for programs.
pub(crate) mod reason {
    pub(crate) const OPEN: &str = "AccessUnsettled";
    pub(crate) const DENIED: &str = "AccessDenied";
}

impl KeptBack {
    /// The reason, for programs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unrecorded | Self::Older { .. } => {
                Entry::Backoff(Pause::Author).reason().unwrap_or_default()
            }
            Self::NotRecording | Self::Open { .. } | Self::Unanswered { .. } => reason::OPEN,
            Self::Denied { .. } => reason::DENIED,
        }
    }

    /// Whether nothing but its users can change that it has no author.
    #[must_use]
    pub fn is_for_want_of_an_author(&self) -> bool {
        match self {
            Self::Unrecorded | Self::Older { .. } => true,
            Self::NotRecording
            | Self::Open { .. }
            | Self::Unanswered { .. }
            | Self::Denied { .. } => false,
        }
    }

    /// Whether it may still turn out to be allowed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Self::NotRecording | Self::Open { .. } | Self::Unanswered { .. } => true,
            Self::Unrecorded | Self::Older { .. } | Self::Denied { .. } => false,
        }
    }
}

/// Whether an AppWrapper may pass: its author may create all of its items, as far as there are such kinds.
/// Of one without, what becomes of it is told when its items are made.
///
/// # Errors
/// Why it may not.
pub fn may_pass(
    world: &World,
    wrapper: &AppWrapper,
    access: UserAccess,
    now: Timestamp,
) -> Result<(), KeptBack> {
    look(world, wrapper, access, now, true)
}

/// Whether the items of an AppWrapper that passed may be made. Kinds may have come since.
///
/// # Errors
/// Why they may not.
pub fn may_create(
    world: &World,
    wrapper: &AppWrapper,
    access: UserAccess,
    now: Timestamp,
) -> Result<(), KeptBack> {
    look(world, wrapper, access, now, false)
}

fn look(
    world: &World,
    wrapper: &AppWrapper,
    access: UserAccess,
    now: Timestamp,
    without_kind: bool,
) -> Result<(), KeptBack> {
    let since = recorded_since(world).ok_or(KeptBack::NotRecording)?;
    let text = wrapper.author().ok_or(KeptBack::Unrecorded)?;
    let made = wrapper.metadata.creation_timestamp.unwrap_or(Timestamp::MIN);
    if made < since {
        return Err(KeptBack::Older { since });
    }
    let author = Author::read(text).ok_or(KeptBack::Unrecorded)?;
    let user = &author.username;
    let reviews = world.facts::<AccessReview>();
    let mut open = None;
    for question in questions_of(wrapper, text, access) {
        let state = reviews.get(&question);
        let review = state.as_ref().and_then(|it| it.observed.as_ref());
        let review = review.filter(|it| counts(&it.value, it.at, wrapper, now));
        let failure = state.as_ref().and_then(|it| it.failure.as_ref());
        let AccessQuestion { need, namespace, .. } = question;
        let (user, namespace) = (user.clone(), namespace.to_string());
        match review.map(|it| it.value.clone()) {
            Some(AccessReview::Allowed) => {}
            Some(AccessReview::NoSuchKind) if without_kind => {}
            Some(AccessReview::Denied { asked, reason }) => {
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                let asked = Box::new(asked);
                return Err(KeptBack::Denied { user, asked, namespace, reason });
            }
            Some(AccessReview::NoSuchKind) | None => match failure {
                Some(failure) => {
                    let why = failure.message.clone();
                    open = Some(KeptBack::Unanswered { user, need, namespace, why });
                }
                None => {
                    open.get_or_insert(KeptBack::Open { user, need, namespace });
                }
            },
        }
    }
    open.map_or(Ok(()), Err)
}

/// Since when authors are recorded, if that is known.
pub(crate) fn recorded_since(world: &World) -> Option<Timestamp> {
    world.facts::<AuthorRecording>().observed(&())?.value.since
}

/// Whether the rights of its author matter to an AppWrapper: it is decided about, or its items are being made.
fn is_undecided(wrapper: &AppWrapper) -> bool {
    wrapper.is_queued() || is_arriving(wrapper)
}

/// Whether an AppWrapper was admitted and its items are being made.
fn is_arriving(wrapper: &AppWrapper) -> bool {
    wrapper.status.can_run && wrapper.is_pending() && crate::state::leaving(wrapper).is_none()
}

/// What the server must be asked before the items of an AppWrapper can be made; nothing where the rights of its
/// author do not matter, or nobody knows who that is.
#[must_use]
pub fn questions(wrapper: &AppWrapper, access: UserAccess) -> Vec<AccessQuestion> {
    let author = wrapper.author().filter(|_| is_undecided(wrapper));
    let author = author.filter(|it| Author::read(it).is_some());
    author.map(|it| questions_of(wrapper, it, access)).unwrap_or_default()
}

/// All that an author must be allowed to do, each once and in order.
fn questions_of(wrapper: &AppWrapper, author: &str, access: UserAccess) -> Vec<AccessQuestion> {
    let mut needs: Vec<Need> = wrapper.items().iter().flat_map(|it| Need::of(it, access)).collect();
    needs.sort_unstable();
    needs.dedup();
    let (author, namespace) = (Arc::from(author), Arc::from(wrapper.metadata.namespace.as_str()));
    let question = |need| AccessQuestion {
        author: Arc::clone(&author),
        namespace: Arc::clone(&namespace),
        need,
    };
    needs.into_iter().map(question).collect()
}

/// Whether an answer counts for an AppWrapper at some time. It does not fail for what was so before it was
/// made: its author may have been told to have a right granted and to create it anew.
fn counts(review: &AccessReview, at: Timestamp, wrapper: &AppWrapper, now: Timestamp) -> bool {
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

/// Whether an AppWrapper may go on, or has failed, because of a change of what is known.
pub(crate) fn is_news(change: &Changed<'_, AccessReview>) -> bool {
    let (before, Some(after)) = (change.before, change.after) else {
        // Nobody needs it any more.
        return false;
    };
    let Some(observed) = after.observed.as_deref().filter(|_| after.failure.is_none()) else {
        return true;
    };
    match observed.value {
        // The same again, in time.
        AccessReview::Allowed => {
            let before = before.and_then(|it| it.observed.as_deref());
            let before = before.filter(|it| it.value == AccessReview::Allowed);
            let until = before.and_then(|it| it.at.checked_add(ALLOWED_VALIDITY).ok());
            until.is_none_or(|until| until <= observed.at)
        }
        AccessReview::Denied { .. } | AccessReview::NoSuchKind => true,
    }
}

/// The AppWrappers whose own plans depend on a change of what is known about a right. A pending one fails when it
/// is denied; for all else the decision about the whole queue matters to it.
pub(crate) fn concerned_by(
    world: &World,
    change: &Changed<'_, AccessReview>,
    access: UserAccess,
) -> Vec<Key> {
    if !is_news(change) {
        return Vec::new();
    }
    let AccessQuestion { author, namespace, need } = change.subject;
    let is_denied =
        matches!(change.after.and_then(|it| it.value()), Some(AccessReview::Denied { .. }));
    let wrappers = world.shelf::<AppWrapper>().tagged(&AppWrapper::made_by(author));
    let concerned = wrappers.iter().filter(|it| {
        *it.metadata.namespace == **namespace
            && (is_arriving(it) || is_denied && it.is_queued())
            && it.items().iter().flat_map(|it| Need::of(it, access)).any(|it| it == *need)
    });
    concerned.map(|it| it.metadata.key()).collect()
}

#[cfg(test)]
mod tests;
