//! Conditions in the statuses of this group.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

/// A condition to be said of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Says {
    pub(crate) kind: &'static str,
    pub(crate) holds: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Says {
    pub(crate) fn yes(kind: &'static str, reason: &'static str) -> Self {
        Self { kind, holds: true, reason, message: String::new() }
    }

    pub(crate) fn no(kind: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind, holds: false, reason, message }
    }

    /// Whether it is said already.
    pub(crate) fn is_said(&self, before: &[Condition]) -> bool {
        find(before, self.kind).is_some_and(|it| {
            it.status == truth(self.holds) && it.reason == self.reason && it.message == self.message
        })
    }
}

/// Whether something in an object had to be read in another way than it is written, when that is worth
/// a word: it never was for most.
pub(crate) fn normalized(remarks: &[String], before: &[Condition]) -> Option<Says> {
    const KIND: &str = "SpecNormalized";
    if remarks.is_empty() {
        let known = find(before, KIND).is_some();
        return known.then(|| Says::no(KIND, "AsItShouldBe", String::new()));
    }
    let mut message = String::new();
    for (at, remark) in remarks.iter().enumerate() {
        if message.len() + remark.len() > LONGEST {
            message.push_str(&format!("; and {} more", remarks.len() - at));
            break;
        }
        if at > 0 {
            message.push_str("; ");
        }
        message.push_str(remark);
    }
    Some(Says { message, ..Says::yes(KIND, "OldSpelling") })
}

/// The longest message that is read to its end; far less than a server allows.
const LONGEST: usize = 4 << 10;

/// One of an object's conditions.
pub(crate) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|it| it.type_ == kind)
}

fn truth(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}

/// A moment as objects have it, in whole seconds.
pub(crate) fn second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Conditions with these among them. One that goes on saying the same does so since it began.
pub(crate) fn with(
    before: &[Condition],
    says: &[Says],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let others = before.iter().filter(|it| says.iter().all(|says| says.kind != it.type_));
    let said = says.iter().map(|says| {
        let since = find(before, says.kind).filter(|it| it.status == truth(says.holds));
        Condition {
            type_: says.kind.to_owned(),
            status: truth(says.holds).to_owned(),
            reason: says.reason.to_owned(),
            message: says.message.clone(),
            last_transition_time: since
                .map_or_else(|| Time(second(now)), |it| it.last_transition_time.clone()),
            observed_generation: Some(generation).filter(|it| *it > 0),
        }
    });
    others.cloned().chain(said).collect()
}

/// Conditions as objects have them.
pub(crate) fn spell(conditions: &[Condition]) -> Value {
    json!(conditions)
}
