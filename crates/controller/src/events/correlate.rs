//! Decides which events are written, and how: the rules of client-go.

use std::collections::HashSet;
use std::time::Duration;

use gantry_process::clock::Moment;
use gantry_reconcile::plan::EventType;
use gantry_reconcile::{Event, ObjectReference};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::lru::Lru;

/// The size of each cache.
const MAX_LRU_CACHE_ENTRIES: usize = 4096;

/// From how many different messages of similar events on they are aggregated, and for how long they
/// are remembered after the last.
const AGGREGATE_MAX_EVENTS: usize = 10;
const AGGREGATE_INTERVAL: Duration = Duration::from_secs(600);

/// How many events one source may write about one object at once, and how long it takes until it
/// may write one more.
const SPAM_BURST: u32 = 25;
const SPAM_REFILL_INTERVAL: Duration = Duration::from_secs(300);

/// An event with its source and time.
pub(super) struct EventOccurrence<'note> {
    pub(super) component: &'note str,
    pub(super) host: &'note str,
    pub(super) event: &'note Event,
    pub(super) at: Timestamp,
}

/// An event to write.
#[derive(Debug, PartialEq)]
pub(super) struct EventWrite {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The whole event.
    pub(super) event: Value,
    /// The patch of the event if it exists already.
    pub(super) patch: Option<Value>,
}

/// Remembers which events were written.
pub(super) struct Correlator {
    aggregates: Lru<AggregationKey, AggregateRecord>,
    written: Lru<EventKey, WrittenEvent>,
    /// When the spam budget of each source and object is full again.
    spam_budgets: Lru<EventSource, Moment>,
    /// Generates names where the object's own cannot be used.
    random_names: fastrand::Rng,
    /// The number in the last name: no two are equal, even when the clock does not advance.
    last_name_number: i128,
}

/// The source of an event, its object and its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventSource {
    component: String,
    host: String,
    /// Without the field.
    about: ObjectReference,
    event_type: EventType,
}

/// Events that differ only in their message.
type AggregationKey = (EventSource, String);

/// Identifies the event object that an occurrence is counted on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EventKey {
    Single { aggregation_key: AggregationKey, field: String, message: String },
    Aggregate(AggregationKey),
}

/// The messages of similar events.
#[derive(Debug)]
struct AggregateRecord {
    messages: HashSet<String>,
    last: Moment,
}

/// An event that was written.
#[derive(Clone, Debug)]
struct WrittenEvent {
    count: u32,
    name: String,
    first: Timestamp,
}

impl Correlator {
    pub(super) fn new(made_up: fastrand::Rng) -> Self {
        Self {
            aggregates: Lru::new(MAX_LRU_CACHE_ENTRIES),
            written: Lru::new(MAX_LRU_CACHE_ENTRIES),
            spam_budgets: Lru::new(MAX_LRU_CACHE_ENTRIES),
            random_names: made_up,
            last_name_number: 0,
        }
    }

    /// What to write for this occurrence; `None` when its source has used up its budget for the
    /// object.
    pub(super) fn correlate(
        &mut self,
        said: &EventOccurrence<'_>,
        now: Moment,
    ) -> Option<EventWrite> {
        let EventOccurrence { component, host, event: note, at } = said;
        let about = ObjectReference { field: String::new(), ..note.about.clone() };
        let source = EventSource {
            component: (*component).to_owned(),
            host: (*host).to_owned(),
            about,
            event_type: note.event_type,
        };
        let sort = (source.clone(), note.reason.to_string());
        let combined = self.should_aggregate(&sort, &note.message, now);
        let subject = if combined {
            EventKey::Aggregate(sort)
        } else {
            let field = note.about.field.clone();
            EventKey::Single { aggregation_key: sort, field, message: note.message.clone() }
        };
        let name = self.name(note.about.key.name(), *at);
        let fresh = || WrittenEvent { count: 0, name, first: *at };
        let written = self.written.get_or_insert_with(&subject, fresh);
        written.count = written.count.saturating_add(1);
        let written = written.clone();
        // The budget is checked last, and for every occurrence: those that are not written are
        // counted with the next one that is.
        let earned = self.spam_budgets.get_or_insert_with(&source, Moment::default);
        take_token(earned, now).then(|| event_write(said, &written, combined))
    }

    /// Whether there are so many events that differ only in their message that they are aggregated.
    fn should_aggregate(&mut self, sort: &AggregationKey, message: &str, now: Moment) -> bool {
        let fresh = || AggregateRecord { messages: HashSet::new(), last: now };
        let alike = self.aggregates.get_or_insert_with(sort, fresh);
        if now - alike.last > AGGREGATE_INTERVAL {
            alike.messages.clear();
        }
        alike.last = now;
        alike.messages.insert(message.to_owned());
        if alike.messages.len() < AGGREGATE_MAX_EVENTS {
            return false;
        }
        // An arbitrary message is removed for each new one: only the number of messages matters.
        let one = alike.messages.iter().next().cloned();
        one.map(|one| alike.messages.remove(&one));
        true
    }

    /// A name that no other event has: the object's name and the time, or a random one where that
    /// is not valid.
    fn name(&mut self, object: &str, at: Timestamp) -> String {
        self.last_name_number = at.as_nanosecond().max(self.last_name_number + 1);
        let name = format!("{object}.{:x}", self.last_name_number);
        if is_name(&name) {
            return name;
        }
        let random = self.random_names.u128(..);
        let hex = format!("{random:032x}");
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        format!("{a}-{b}-{c}-{d}-{e}")
    }
}

/// Spends one event of a source's budget.
fn take_token(earned: &mut Moment, now: Moment) -> bool {
    let from = (*earned).max(now);
    let ahead = SPAM_REFILL_INTERVAL * (SPAM_BURST - 1);
    if from - now > ahead {
        return false;
    }
    *earned = from + SPAM_REFILL_INTERVAL;
    true
}

/// Whether this is a valid object name: a DNS subdomain.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let part = |part: &str| {
        !part.is_empty() && part.chars().all(fits) && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

fn event_write(said: &EventOccurrence<'_>, written: &WrittenEvent, combined: bool) -> EventWrite {
    let EventOccurrence { component, host, event: note, at } = said;
    let ObjectReference { resource, key, uid, field } = &note.about;
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
    // client-go omits these from aggregated events.
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
        "type": match note.event_type {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        },
        "eventTime": null,
        "reportingComponent": reporter,
        "reportingInstance": instance,
    });
    let again = (written.count > 1).then(
        || json!({ "count": written.count, "lastTimestamp": seconds(*at), "message": message }),
    );
    let (event, again) = match note.action {
        Some(action) => to_events_v1(said, written, event, action),
        None => (event, again),
    };
    EventWrite { namespace: namespace.to_owned(), name: written.name.clone(), event, patch: again }
}

/// An event of `events.k8s.io` in its core representation: it has a time and an action instead of a
/// source, and a series instead of a count.
fn to_events_v1(
    said: &EventOccurrence<'_>,
    written: &WrittenEvent,
    mut event: Value,
    action: &str,
) -> (Value, Option<Value>) {
    let EventOccurrence { component, host, at, .. } = said;
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
