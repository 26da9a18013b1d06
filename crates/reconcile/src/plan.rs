//! What a controller wants done.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use crate::call::Call;
use crate::held::Held;
use crate::object::Reference;
use crate::write::{Outcome, User, Write};

/// The answer of a controller to what it saw.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Writes to make. They are independent of each other: any may land, in any order, or none. What
    /// needs another to have landed is put [after](Step::then) it.
    pub steps: Vec<Step>,
    /// The calls that should be under way now. A call of the plan before that is not among them is given up.
    pub calls: Vec<Call>,
    /// What is worth telling whatever becomes of the writes.
    pub notes: Vec<Note>,
    /// What is wanted and held back.
    pub held: Vec<Held>,
    /// When to plan again even if nothing changes.
    pub look_again: Option<Duration>,
}

impl Plan {
    /// Adds a write.
    pub fn write(&mut self, write: Write) {
        self.steps.push(Step::new(write));
    }

    /// Wants a call to be under way.
    pub fn call(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Plans again at `when`, or before.
    pub fn look_at(&mut self, when: Timestamp, now: Timestamp) {
        let wait = Duration::try_from(when.duration_since(now)).unwrap_or_default();
        self.look_within(wait);
    }

    /// Plans again after `wait`, or before.
    pub fn look_within(&mut self, wait: Duration) {
        self.look_again = Some(self.look_again.map_or(wait, |before| before.min(wait)));
    }

    /// Holds something back.
    pub fn hold(&mut self, held: Held, now: Timestamp) {
        if let Some(until) = held.until {
            self.look_at(until, now);
        }
        self.held.push(held);
    }

    /// Whether nothing is to be written, called or told.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.steps.is_empty() && self.calls.is_empty() && self.notes.is_empty()
    }
}

/// A write, and what is told about it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The write.
    pub write: Write,
    /// Told when it took, and only then: what is noted with a write that is planned anew after a
    /// conflict is told once.
    pub done: Vec<Note>,
    /// Told when it was refused; the server's words are put after the message.
    pub refused: Option<Note>,
    /// What must be there and not be going. The server is asked right before the write, because what
    /// is known of one kind may be older than what is known of another.
    pub provided: Option<Reference>,
    /// What must not be there any more. The server is asked right before the write: what a cache does
    /// not show may be gone, or may be news that did not arrive yet. An object that is gone never
    /// comes back under its identity, so the answer stays true.
    pub gone: Vec<Reference>,
    /// Whether it only says something. Where requests are few it gives way to those that do something, and
    /// is planned anew a while later: by then there may be something else to say.
    pub can_wait: bool,
    /// The user in whose name the write is made: the server checks their rights and not the controller's. It is
    /// refused by a writer that cannot act for users, and never made with other rights instead.
    pub on_behalf_of: Option<Box<User>>,
    /// Carried out when the write took, and only then, without planning anew in between. Who plans
    /// next must be able to go on from any of them: a process may end after each.
    pub then: Vec<Step>,
}

impl Step {
    /// A write about which nothing is told.
    #[must_use]
    pub fn new(write: Write) -> Self {
        let (done, gone, then) = (Vec::new(), Vec::new(), Vec::new());
        let (refused, provided, on_behalf_of) = (None, None, None);
        Self { write, done, refused, provided, gone, can_wait: false, on_behalf_of, then }
    }

    /// Tells this too when the write took.
    #[must_use]
    pub fn done(mut self, note: Note) -> Self {
        self.done.push(note);
        self
    }

    /// Writes only while this is there and not going.
    #[must_use]
    pub fn provided(mut self, object: Reference) -> Self {
        self.provided = Some(object);
        self
    }

    /// Writes only when this is not there any more.
    #[must_use]
    pub fn gone(mut self, object: Reference) -> Self {
        self.gone.push(object);
        self
    }

    /// Gives way to others where requests are few.
    #[must_use]
    pub fn can_wait(self) -> Self {
        Self { can_wait: true, ..self }
    }

    /// Writes in the name of a user.
    #[must_use]
    pub fn on_behalf_of(self, user: User) -> Self {
        Self { on_behalf_of: Some(Box::new(user)), ..self }
    }

    /// Carries this out when the write took.
    #[must_use]
    pub fn then(mut self, step: Self) -> Self {
        self.then.push(step);
        self
    }

    /// Tells this when the write was refused, followed by the server's words.
    #[must_use]
    pub fn refused(mut self, note: Note) -> Self {
        self.refused = Some(note);
        self
    }
}

impl Step {
    /// What is told about the write, by what became of it.
    #[must_use]
    pub fn told(self, outcome: &Outcome) -> Vec<Note> {
        match outcome {
            Outcome::Done(_) => self.done,
            Outcome::Refused(refusal) => {
                let note = self
                    .refused
                    .map(|note| Note { message: format!("{}: {refusal}", note.message), ..note });
                note.into_iter().collect()
            }
            Outcome::Absent | Outcome::Stale(_) | Outcome::Unanswered(_) => Vec::new(),
        }
    }
}

/// Something to tell about an object: an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// About what.
    pub about: Reference,
    /// Whether it is a warning.
    pub tone: Tone,
    /// What, in one word in camel case.
    pub reason: Cow<'static, str>,
    /// What, in a sentence.
    pub message: String,
    /// In the course of what, if whoever tells it writes events of the newer form, which have it.
    pub action: Option<&'static str>,
}

/// How serious a note is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tone {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Note {
    /// A note that all is as it should be.
    #[must_use]
    pub fn normal(about: Reference, reason: &'static str, message: String) -> Self {
        Self { about, tone: Tone::Normal, reason: Cow::Borrowed(reason), message, action: None }
    }

    /// A note that somebody should look.
    #[must_use]
    pub fn warning(about: Reference, reason: &'static str, message: String) -> Self {
        Self { about, tone: Tone::Warning, reason: Cow::Borrowed(reason), message, action: None }
    }

    /// The same as an event of the newer form, told in the course of this.
    #[must_use]
    pub fn doing(self, action: &'static str) -> Self {
        Self { action: Some(action), ..self }
    }
}
