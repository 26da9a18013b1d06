//! Which of many notes are written, and how: the rules of client-go.

use std::collections::HashSet;
use std::time::Duration;

use gantry_process::clock::Moment;
use gantry_reconcile::plan::Tone;
use gantry_reconcile::{Note, Reference};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::lru::Lru;

/// How much is remembered of each sort.
const REMEMBERED: usize = 4096;

/// From how many different messages of one sort on they are combined, and for how long they are
/// remembered after the last.
const ALIKE: usize = 10;
const ALIKE_FOR: Duration = Duration::from_secs(600);

/// How many events one source may write about one object at once, and how long one takes to be
/// earned back.
const BURST: u32 = 25;
const EARNED_IN: Duration = Duration::from_secs(300);

/// A note, who says it and when.
pub(super) struct Said<'note> {
    pub(super) component: &'note str,
    pub(super) host: &'note str,
    pub(super) note: &'note Note,
    pub(super) at: Timestamp,
}

/// An event to write.
#[derive(Debug, PartialEq)]
pub(super) struct Post {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The whole event.
    pub(super) event: Value,
    /// What to change where the event exists already.
    pub(super) again: Option<Value>,
}

/// Remembers what was said.
pub(super) struct Correlator {
    alike: Lru<Sort, Alike>,
    written: Lru<Subject, Written>,
    /// When each source has earned back what it wrote about an object.
    earned: Lru<Source, Moment>,
    /// Names that cannot be made from the object's own.
    made_up: fastrand::Rng,
    /// The number in the last name: no two are alike, even when time stands still.
    last: i128,
}

/// Who says it about what, and how serious it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source {
    component: String,
    host: String,
    /// Without the field.
    about: Reference,
    tone: Tone,
}

/// What is alike but for the words.
type Sort = (Source, String);

/// What one event stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    One { sort: Sort, field: String, message: String },
    Many(Sort),
}

/// The words of one sort.
#[derive(Debug)]
struct Alike {
    messages: HashSet<String>,
    last: Moment,
}

/// An event that was written.
#[derive(Clone, Debug)]
struct Written {
    count: u32,
    name: String,
    first: Timestamp,
}

impl Correlator {
    pub(super) fn new(made_up: fastrand::Rng) -> Self {
        Self {
            alike: Lru::new(REMEMBERED),
            written: Lru::new(REMEMBERED),
            earned: Lru::new(REMEMBERED),
            made_up,
            last: 0,
        }
    }

    /// What to write of this; nothing when its source has said too much about the object.
    pub(super) fn correlate(&mut self, said: &Said<'_>, now: Moment) -> Option<Post> {
        let Said { component, host, note, at } = said;
        let about = Reference { field: String::new(), ..note.about.clone() };
        let source = Source {
            component: (*component).to_owned(),
            host: (*host).to_owned(),
            about,
            tone: note.tone,
        };
        let sort = (source.clone(), note.reason.to_string());
        let combined = self.is_one_of_many(&sort, &note.message, now);
        let subject = if combined {
            Subject::Many(sort)
        } else {
            let field = note.about.field.clone();
            Subject::One { sort, field, message: note.message.clone() }
        };
        let name = self.name(note.about.key.name(), *at);
        let fresh = || Written { count: 0, name, first: *at };
        let written = self.written.get_or_insert_with(&subject, fresh);
        written.count = written.count.saturating_add(1);
        let written = written.clone();
        // Asked last, and of everything: what was held back is counted when it is heard again.
        let earned = self.earned.get_or_insert_with(&source, Moment::default);
        spend(earned, now).then(|| post(said, &written, combined))
    }

    /// Whether this is one of so many that differ only in their words that they are combined.
    fn is_one_of_many(&mut self, sort: &Sort, message: &str, now: Moment) -> bool {
        let fresh = || Alike { messages: HashSet::new(), last: now };
        let alike = self.alike.get_or_insert_with(sort, fresh);
        if now - alike.last > ALIKE_FOR {
            alike.messages.clear();
        }
        alike.last = now;
        alike.messages.insert(message.to_owned());
        if alike.messages.len() < ALIKE {
            return false;
        }
        // One goes for each that comes, whichever: what counts is how many there are.
        let one = alike.messages.iter().next().cloned();
        one.map(|one| alike.messages.remove(&one));
        true
    }

    /// A name no other event has: the object's and the time, or made up where that is no name.
    fn name(&mut self, object: &str, at: Timestamp) -> String {
        self.last = at.as_nanosecond().max(self.last + 1);
        let name = format!("{object}.{:x}", self.last);
        if is_name(&name) {
            return name;
        }
        let random = self.made_up.u128(..);
        let hex = format!("{random:032x}");
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        format!("{a}-{b}-{c}-{d}-{e}")
    }
}

/// Spends one of the events that a source has earned.
fn spend(earned: &mut Moment, now: Moment) -> bool {
    let from = (*earned).max(now);
    let ahead = EARNED_IN * (BURST - 1);
    if from - now > ahead {
        return false;
    }
    *earned = from + EARNED_IN;
    true
}

/// Whether an object may have this name: a DNS subdomain.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let part = |part: &str| {
        !part.is_empty() && part.chars().all(fits) && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

fn post(said: &Said<'_>, written: &Written, combined: bool) -> Post {
    let Said { component, host, note, at } = said;
    let Reference { resource, key, uid, field } = &note.about;
    let namespace = match key.namespace() {
        "" => "default",
        namespace => namespace,
    };
    let mut involved = json!({ "kind": resource.kind });
    let texts = [
        ("namespace", key.namespace()),
        ("name", key.name()),
        ("uid", uid.as_str()),
        ("apiVersion", &resource.api_version()),
        ("fieldPath", field),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        involved[name] = text.into();
    }
    let mut source = json!({ "component": component });
    if !host.is_empty() {
        source["host"] = (*host).into();
    }
    let message = match combined {
        true => format!("(combined from similar events): {}", note.message),
        false => note.message.clone(),
    };
    // client-go leaves these out of what it combines.
    let (reporter, instance) = if combined { ("", "") } else { (*component, *host) };
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": written.name, "namespace": namespace },
        "involvedObject": involved,
        "reason": note.reason,
        "message": message,
        "source": source,
        "firstTimestamp": seconds(written.first),
        "lastTimestamp": seconds(*at),
        "count": written.count,
        "type": match note.tone { Tone::Normal => "Normal", Tone::Warning => "Warning" },
        "eventTime": null,
        "reportingComponent": reporter,
        "reportingInstance": instance,
    });
    let again = (written.count > 1).then(
        || json!({ "count": written.count, "lastTimestamp": seconds(*at), "message": message }),
    );
    let (event, again) = match note.action {
        Some(action) => newer(said, written, event, action),
        None => (event, again),
    };
    Post { namespace: namespace.to_owned(), name: written.name.clone(), event, again }
}

/// An event as `events.k8s.io` has them, seen as one of the older sort: it has a time and an action
/// instead of a source, and a series instead of a count.
fn newer(
    said: &Said<'_>,
    written: &Written,
    mut event: Value,
    action: &str,
) -> (Value, Option<Value>) {
    let Said { component, host, at, .. } = said;
    let instance = [*component, *host].into_iter().filter(|it| !it.is_empty());
    let instance = instance.collect::<Vec<_>>().join("-");
    for (field, value) in [
        ("source", json!({})),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", micros(written.first).into()),
        ("action", action.into()),
        ("reportingComponent", (*component).into()),
        ("reportingInstance", instance.into()),
    ] {
        event[field] = value;
    }
    if let Some(fields) = event.as_object_mut() {
        fields.remove("count");
    }
    let again = (written.count > 1).then(|| {
        let series = json!({ "count": written.count, "lastObservedTime": micros(*at) });
        event["series"] = series.clone();
        json!({ "series": series, "message": event["message"] })
    });
    (event, again)
}

/// A time as newer events have it: to the microsecond.
fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A time as objects have it: to the second.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
