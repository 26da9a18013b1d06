//! Plans: what a controller wants done.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use crate::call::Call;
use crate::held::Held;
use crate::object::ObjectReference;
use crate::write::{Outcome, User, Write};

/// The result of reconciling one key: writes, calls, events and held reasons.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The writes to make. They are independent of each other: any may be applied, in any order, or
    /// none. A write that requires another one to have succeeded is attached to it by
    /// [`then`](Step::then).
    pub steps: Vec<Step>,
    /// The calls that should be in flight now. A call of the previous plan that is not among them
    /// is cancelled.
    pub calls: Vec<Call>,
    /// Events to record whatever the outcome of the writes.
    pub events: Vec<Event>,
    /// Wanted actions that are held back.
    pub held: Vec<Held>,
    /// When to plan again even if nothing changes.
    pub requeue_after: Option<Duration>,
}

impl Plan {
    /// Adds a write.
    pub fn write(&mut self, write: Write) {
        self.steps.push(Step::new(write));
    }

    /// Adds a call that should be in flight.
    pub fn call(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Requeues the key at `when` at the latest.
    pub fn requeue_at(&mut self, when: Timestamp, now: Timestamp) {
        let wait = Duration::try_from(when.duration_since(now)).unwrap_or_default();
        self.requeue_after(wait);
    }

    /// Requeues the key after `wait` at the latest.
    pub fn requeue_after(&mut self, wait: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(wait, |before| before.min(wait)));
    }

    /// Holds an action back and requeues the key for the time it is held until.
    pub fn hold(&mut self, held: Held, now: Timestamp) {
        if let Some(until) = held.until {
            self.requeue_at(until, now);
        }
        self.held.push(held);
    }

    /// Whether the plan has no writes, calls or events.
    #[must_use]
    pub fn is_noop(&self) -> bool {
        self.steps.is_empty() && self.calls.is_empty() && self.events.is_empty()
    }
}

/// A write, with its preconditions and the events to record about it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The write.
    pub write: Write,
    /// Recorded when the write succeeds, and only then: the events of a write that is planned again
    /// after a conflict are recorded once.
    pub success_events: Vec<Event>,
    /// Recorded when the write is refused; the server's message is appended to the event's.
    pub refusal_event: Option<Event>,
    /// An object that must exist and not be terminating. The server is asked right before the
    /// write, because the cache of one kind may be older than that of another.
    pub require_present: Option<ObjectReference>,
    /// Objects that must no longer exist. The server is asked right before the write: an object
    /// that the cache does not show may be deleted, or may be new and not yet observed. A deleted
    /// object never returns under its UID, so the response stays true.
    pub require_absent: Vec<ObjectReference>,
    /// Whether the write only reports something. When requests are scarce it is deferred in favour
    /// of those that act, and planned again later: by then there may be something else to report.
    pub deferrable: bool,
    /// The user to impersonate: the server checks their permissions and not the controller's. A
    /// writer that cannot impersonate users refuses the write, and never makes it with other
    /// permissions instead.
    pub impersonate: Option<Box<User>>,
    /// Executed when the write succeeds, and only then, without another plan in between. The next
    /// plan must be able to continue after any of them: the process may end after each.
    pub then: Vec<Step>,
}

impl Step {
    /// A write without events or preconditions.
    #[must_use]
    pub fn new(write: Write) -> Self {
        let (done, gone, then) = (Vec::new(), Vec::new(), Vec::new());
        let (refused, provided, on_behalf_of) = (None, None, None);
        Self {
            write,
            success_events: done,
            refusal_event: refused,
            require_present: provided,
            require_absent: gone,
            deferrable: false,
            impersonate: on_behalf_of,
            then,
        }
    }

    /// Records this event when the write succeeds.
    #[must_use]
    pub fn on_success(mut self, note: Event) -> Self {
        self.success_events.push(note);
        self
    }

    /// Writes only while this object exists and is not terminating.
    #[must_use]
    pub fn require_present(mut self, object: ObjectReference) -> Self {
        self.require_present = Some(object);
        self
    }

    /// Writes only when this object no longer exists.
    #[must_use]
    pub fn require_absent(mut self, object: ObjectReference) -> Self {
        self.require_absent.push(object);
        self
    }

    /// Lets the write be deferred when requests are scarce.
    #[must_use]
    pub fn deferrable(self) -> Self {
        Self { deferrable: true, ..self }
    }

    /// Writes as this user, by impersonation.
    #[must_use]
    pub fn impersonate(self, user: User) -> Self {
        Self { impersonate: Some(Box::new(user)), ..self }
    }

    /// Executes this step when the write succeeds.
    #[must_use]
    pub fn then(mut self, step: Self) -> Self {
        self.then.push(step);
        self
    }

    /// Records this event when the write is refused, with the server's message appended.
    #[must_use]
    pub fn on_refusal(mut self, note: Event) -> Self {
        self.refusal_event = Some(note);
        self
    }
}

impl Step {
    /// The events to record for this outcome of the write.
    #[must_use]
    pub fn events_for(self, outcome: &Outcome) -> Vec<Event> {
        match outcome {
            Outcome::Done(_) => self.success_events,
            Outcome::Refused(refusal) => {
                let note = self
                    .refusal_event
                    .map(|note| Event { message: format!("{}: {refusal}", note.message), ..note });
                note.into_iter().collect()
            }
            Outcome::NotFound | Outcome::Conflict(_) | Outcome::Unknown(_) => Vec::new(),
        }
    }
}

/// A Kubernetes event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object it is about.
    pub about: ObjectReference,
    /// Whether it is a warning.
    pub event_type: EventType,
    /// The reason in CamelCase.
    pub reason: Cow<'static, str>,
    /// The message, a sentence.
    pub message: String,
    /// The `action` of events in `events.k8s.io/v1`; absent for a reporter that writes core events.
    pub action: Option<&'static str>,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Normal operation.
    Normal,
    /// A problem that a user should look at.
    Warning,
}

impl Event {
    /// An event of type Normal.
    #[must_use]
    pub fn normal(about: ObjectReference, reason: &'static str, message: String) -> Self {
        Self {
            about,
            event_type: EventType::Normal,
            reason: Cow::Borrowed(reason),
            message,
            action: None,
        }
    }

    /// An event of type Warning.
    #[must_use]
    pub fn warning(about: ObjectReference, reason: &'static str, message: String) -> Self {
        Self {
            about,
            event_type: EventType::Warning,
            reason: Cow::Borrowed(reason),
            message,
            action: None,
        }
    }

    /// The same event with an `action`, as `events.k8s.io/v1` has it.
    #[must_use]
    pub fn with_action(self, action: &'static str) -> Self {
        Self { action: Some(action), ..self }
    }
}
