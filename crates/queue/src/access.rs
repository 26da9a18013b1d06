//! Whether the author of an AppWrapper may create what it wraps, as far as that is known.
//!
//! The server is asked elsewhere. What it said is put down as facts that no server serves: a [`Right`] for
//! each author, namespace and kind, and since when authors are recorded at all ([`Recording`]). Answers are
//! kept for a short time, so that rights that are granted or taken away count.

use std::time::Duration;

use gantry_reconcile::{Change, Key, Kind, Meta, Resource, View, World};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::app_wrapper::{AppWrapper, TypeName};
use crate::author::{Author, CONFIGURATION};
use crate::condition::{Entry, Pause};
use crate::settings::UserAccess;
use crate::state;

mod need;

pub use need::{Attributes, Need};

/// For how long a yes counts.
const YES: Duration = Duration::from_secs(30);
/// When a yes is asked for again, so that there is another before it is over.
const RENEWED: Duration = Duration::from_secs(15);
/// For how long a no counts, and that there is no such kind. Who is told so has failed at once.
const NO: Duration = Duration::from_secs(10);
/// After how long a question is asked again that could not be answered.
const UNANSWERED: Duration = Duration::from_secs(5);
/// What servers know of when an object was made is cut to seconds.
const SECOND: Duration = Duration::from_secs(1);

/// Whether an author may create objects of a kind in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Right {
    /// Its place: see [`Question::key`].
    pub metadata: Meta,
    /// The author, as AppWrappers name it.
    pub author: String,
    /// What the server said.
    pub answer: Answer,
    /// When it was asked.
    pub at: Timestamp,
}

/// What a server says about a right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
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
    NoKind,
    /// It did not say.
    Unanswered(String),
}

impl View for Right {
    /// A kind that no server serves.
    const RESOURCE: Resource =
        Resource::namespaced("local.gantry.dev", "v1", "rights", "Right").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Since when the author of what is made is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Recording {
    /// Its place: [`Recording::key`].
    pub metadata: Meta,
    /// Since when.
    pub since: Timestamp,
}

impl Recording {
    /// It has been recorded since then.
    #[must_use]
    pub fn new(since: Timestamp) -> Self {
        let name = Self::key().name().to_owned();
        Self { metadata: Meta { name, ..Meta::default() }, since }
    }

    /// There is one.
    #[must_use]
    pub fn key() -> Key {
        Key::cluster("authors")
    }
}

impl View for Recording {
    /// A kind that no server serves.
    const RESOURCE: Resource =
        Resource::namespaced("local.gantry.dev", "v1", "recordings", "Recording")
            .cluster_wide()
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What is decided by, beside AppWrappers.
#[must_use]
pub fn kinds() -> [Kind; 2] {
    [Kind::of::<Right>(), Kind::of::<Recording>()]
}

/// What a server is to be asked: may this author do this?
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The author, as AppWrappers name it.
    pub author: String,
    /// Where.
    pub namespace: String,
    /// What.
    pub need: Need,
}

impl Question {
    /// Where the answer is. Users choose all of the words, so none may be mistaken for others.
    #[must_use]
    pub fn key(&self) -> Key {
        key(&self.author, &self.namespace, &self.need)
    }

    /// An answer.
    #[must_use]
    pub fn answered(&self, answer: Answer, at: Timestamp) -> Right {
        let key = self.key();
        let (name, namespace) = (key.name().to_owned(), key.namespace().to_owned());
        let metadata = Meta { name, namespace, ..Meta::default() };
        Right { metadata, author: self.author.clone(), answer, at }
    }
}

fn key(author: &str, namespace: &str, need: &Need) -> Key {
    let name = match need {
        Need::Create(TypeName { api_version, kind }) => {
            serde_json::json!([api_version, kind, author])
        }
        // Neither is mistaken for the other: one begins with text, the other with a list.
        Need::Privilege(privilege) => serde_json::json!([privilege.attributes(), author]),
    };
    Key::new(namespace, &name.to_string())
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
    let shelf = world.shelf_at::<Recording>(&Recording::RESOURCE);
    let recording = shelf.and_then(|it| it.get(&Recording::key()));
    let since = recording.ok_or(KeptBack::NotRecording)?.since;
    let text = wrapper.author().ok_or(KeptBack::Unrecorded)?;
    let made = wrapper.metadata.creation_timestamp.unwrap_or(Timestamp::MIN);
    if made < since {
        return Err(KeptBack::Older { since });
    }
    let author = Author::read(text).ok_or(KeptBack::Unrecorded)?;
    let (user, namespace) = (&author.username, &wrapper.metadata.namespace);
    let rights = world.shelf_at::<Right>(&Right::RESOURCE);
    let mut open = None;
    for need in needs(wrapper, access) {
        let known = rights.as_ref().and_then(|it| it.get(&key(text, namespace, &need)));
        let (user, namespace) = (user.clone(), namespace.clone());
        match known.filter(|it| counts(it, wrapper, now)).map(|it| it.answer.clone()) {
            Some(Answer::Allowed) => {}
            Some(Answer::NoKind) if without_kind => {}
            Some(Answer::Denied { asked, reason }) => {
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                let asked = Box::new(asked);
                return Err(KeptBack::Denied { user, asked, namespace, reason });
            }
            Some(Answer::Unanswered(why)) => {
                open = Some(KeptBack::Unanswered { user, need, namespace, why });
            }
            Some(Answer::NoKind) | None => {
                open.get_or_insert(KeptBack::Open { user, need, namespace });
            }
        }
    }
    open.map_or(Ok(()), Err)
}

/// All that the author of an AppWrapper must be allowed to do, each once.
fn needs(wrapper: &AppWrapper, access: UserAccess) -> Vec<Need> {
    let mut needs: Vec<Need> = wrapper.items().iter().flat_map(|it| Need::of(it, access)).collect();
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// Whether an answer counts for an AppWrapper at some time. It does not fail for what was so before it was
/// made: its author may have been told to have a right granted and to create it anew.
fn counts(right: &Right, wrapper: &AppWrapper, now: Timestamp) -> bool {
    let lasts = |time: Duration| right.at.checked_add(time).is_ok_and(|until| now < until);
    match right.answer {
        Answer::Allowed => lasts(YES),
        Answer::NoKind => lasts(NO),
        Answer::Denied { .. } => {
            let made = wrapper.metadata.creation_timestamp.unwrap_or(Timestamp::MIN);
            lasts(NO) && made.checked_add(SECOND).is_ok_and(|made| made <= right.at)
        }
        Answer::Unanswered(_) => true,
    }
}

/// What the server must be asked now so that an AppWrapper can go on.
#[must_use]
pub fn questions(
    world: &World,
    wrapper: &AppWrapper,
    access: UserAccess,
    now: Timestamp,
) -> Vec<Question> {
    let passed =
        wrapper.status.can_run && wrapper.is_pending() && state::leaving(wrapper).is_none();
    let Some(author) = wrapper.author().filter(|_| passed || wrapper.is_queued()) else {
        return Vec::new();
    };
    if Author::read(author).is_none() {
        return Vec::new();
    }
    let namespace = &wrapper.metadata.namespace;
    let rights = world.shelf_at::<Right>(&Right::RESOURCE);
    let is_open = |need: &Need| {
        let known = rights.as_ref().and_then(|it| it.get(&key(author, namespace, need)));
        let Some(known) = known else { return true };
        let over = |time: Duration| known.at.checked_add(time).is_ok_and(|until| until <= now);
        match known.answer {
            Answer::Allowed => over(RENEWED),
            Answer::Denied { .. } => over(SECOND) && !counts(&known, wrapper, now),
            Answer::NoKind => over(SECOND) && (passed || !counts(&known, wrapper, now)),
            Answer::Unanswered(_) => over(UNANSWERED),
        }
    };
    let question =
        |need: Need| Question { author: author.to_owned(), namespace: namespace.clone(), need };
    needs(wrapper, access).into_iter().filter(is_open).map(question).collect()
}

/// Whether an answer is of no use to anybody any more.
#[must_use]
pub fn is_over(right: &Right, now: Timestamp) -> bool {
    right.at.checked_add(YES).is_ok_and(|until| until <= now)
}

/// Whether somebody may go on, or has failed, because of a change of what is known.
pub(crate) fn is_news(change: &Change) -> bool {
    let (Some(before), Some(after)) = (change.before::<Right>(), change.after::<Right>()) else {
        return !change.is_removal();
    };
    match after.answer {
        // The same again, in time.
        Answer::Allowed => before.answer != Answer::Allowed || is_over(before, after.at),
        Answer::Denied { .. } | Answer::NoKind | Answer::Unanswered(_) => true,
    }
}

#[cfg(test)]
mod tests;
