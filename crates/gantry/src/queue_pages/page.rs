//! Renders the explanation of one AppWrapper.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gantry_columns::{TABLE_GAP, align};
use gantry_queue::app_wrapper_report::{
    AppWrapperReport, CapacityReport, CapacityShare, HistoryEvent, ItemReport, PodsReport,
    QuotaCharge, RequeuingReport, Unschedulable,
};
use gantry_queue::queue_report::{ExpectedEvent, QueueRow};
use jiff::Timestamp;

use super::{format_duration, format_timestamp, priority, state};

/// Renders the whole explanation of one AppWrapper.
#[must_use]
pub fn page(story: &AppWrapperReport, now: Timestamp) -> String {
    let mut text = String::new();
    let row = &story.row;
    let mut facts = Facts(&mut text);
    facts.add("appwrapper", &format!("{} -n {}", row.name, row.namespace));
    facts.add("state", &state_line(row, now));
    facts.add("priority", &rank(story));
    facts.add_optional("position", row.position.map(|it| format!("{it} of {}", story.waiting)));
    facts.add_optional("waits for", waiting_line(row, now));
    facts.add_optional("expected", expected(row, now));
    facts.add_optional("message", row.message.clone().filter(|_| row.waits_for.is_none()));
    facts.add("demand", &demand(story));
    facts.add_optional("pods", pods(&story.pods));
    requeuing(&story.requeuing, now, &mut facts);
    facts.add_optional("victims", some(story.victims.join(", ")));
    items(&story.items, &mut text);
    if let Some(room) = &story.room {
        free_capacity(room, &mut text);
    }
    quota(&story.quota, &mut text);
    unschedulable(&story.pods.unschedulable, &mut text);
    history(&story.history, now, &mut text);
    section("next", &story.advice, &mut text);
    text
}

/// Lines with a label.
struct Facts<'a>(&'a mut String);

impl Facts<'_> {
    fn add(&mut self, word: &str, text: &str) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "{word:<12}{text}");
    }

    fn add_optional(&mut self, word: &str, text: Option<String>) {
        if let Some(text) = text {
            self.add(word, &text);
        }
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|it| !it.is_empty())
}

/// Adds a section with a title; nothing if it has no lines.
fn section(head: &str, lines: &[String], to: &mut String) {
    if lines.is_empty() {
        return;
    }
    to.push_str(head);
    to.push('\n');
    for line in lines {
        to.push_str("  ");
        to.push_str(line);
        to.push('\n');
    }
}

/// Adds a section whose lines have aligned columns.
fn columns(head: &str, lines: &[Vec<String>], to: &mut String) {
    let lines: Vec<String> = align(lines, TABLE_GAP).lines().map(str::to_owned).collect();
    section(head, &lines, to);
}

/// Renders a time, and how far away it is.
fn format_time(at: Timestamp, now: Timestamp) -> String {
    let far = now.duration_since(at);
    let far = if far.is_negative() {
        format!("in {}", format_duration(-far))
    } else {
        format!("{} ago", format_duration(far))
    };
    format!("{} ({far})", format_timestamp(at))
}

fn state_line(row: &QueueRow, now: Timestamp) -> String {
    let mut text = state(row).to_owned();
    if !row.step.is_empty() && row.step != row.state {
        text = format!("{text}, {}", row.step);
    }
    match row.since {
        Some(since) => format!("{text} since {}", format_time(since, now)),
        None => text,
    }
}

fn rank(story: &AppWrapperReport) -> String {
    let now = priority(story.row.priority);
    let fixed = story.static_priority;
    match story.slope == 0.0 {
        true => now,
        false => format!("{now} now; spec.priority {fixed}, slope {} a second", story.slope),
    }
}

fn waiting_line(row: &QueueRow, now: Timestamp) -> Option<String> {
    let wait = row.waits_for.as_ref()?;
    let until = wait.until.filter(|it| *it > now);
    let until = until.map(|it| format!("; until {}", format_time(it, now))).unwrap_or_default();
    Some(format!("{}: {}{until}", wait.reason.as_str(), wait.message))
}

fn expected(row: &QueueRow, now: Timestamp) -> Option<String> {
    let expected = row.expected?;
    let at = format_time(expected.at, now);
    Some(match expected.what {
        ExpectedEvent::Starts => "starts now".to_owned(),
        ExpectedEvent::StartsNotBefore => format!("starts not before {at}"),
        ExpectedEvent::StartsAfterDeadlines => {
            format!("starts about {at}, when running AppWrappers time out")
        }
        ExpectedEvent::EndsAtLatest => format!("ends by {at}: its time limit"),
    })
}

fn amounts(amounts: &BTreeMap<String, String>) -> String {
    let words: Vec<String> =
        amounts.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn demand(story: &AppWrapperReport) -> String {
    format!("{} (demandInference: {})", amounts(&story.demand), story.inference)
}

fn pods(pods: &PodsReport) -> Option<String> {
    let counts = [
        (pods.pending, "pending"),
        (pods.running, "running"),
        (pods.succeeded, "succeeded"),
        (pods.failed, "failed"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let mut counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
    if !pods.unreachable.is_empty() {
        counts.push(format!("{} on nodes that are not ready or deleted", pods.unreachable.len()));
    }
    some(counts.join(", "))
}

fn requeuing(rule: &RequeuingReport, now: Timestamp, facts: &mut Facts<'_>) {
    let RequeuingReport { min_available, wait_seconds, so_far, most, next_check, deadline } = rule;
    let most = most.map_or_else(String::new, |it| format!(" of {it}"));
    let check =
        next_check.map_or_else(String::new, |it| format!(", checked {}", format_time(it, now)));
    if *min_available > 0 {
        let text = format!(
            "if fewer than {min_available} pods run after {wait_seconds}s{check}; {so_far}{most} \
             so far"
        );
        facts.add("requeued", &text);
    } else if *so_far > 0 {
        facts.add("requeued", &format!("{so_far}{most} so far"));
    }
    facts.add_optional("deadline", deadline.map(|it| format_time(it, now)));
}

fn items(items: &[ItemReport], to: &mut String) {
    let lines = items.iter().map(|item| {
        let mut state = item.standing.text().to_owned();
        if let Some(fault) = &item.fault {
            state = format!("{state}: {fault}");
        }
        if let Some(complete) = item.complete {
            let word = if complete { "complete" } else { "not complete" };
            state = format!("{state}, {word} ({})", item.completion);
        }
        if !item.conditions.is_empty() {
            state = format!("{state}, has {}", item.conditions.join(" "));
        }
        let asked = match item.demand.is_empty() {
            true => item.source.text().to_owned(),
            false => format!("{}, {}", amounts(&item.demand), item.source.text()),
        };
        vec![format!("{}/{}", item.kind.to_lowercase(), item.name), asked, state]
    });
    columns("items", &lines.collect::<Vec<_>>(), to);
}

fn shares(shares: &[CapacityShare]) -> String {
    let words: Vec<String> =
        shares.iter().map(|it| format!("{} ({})", it.who, amounts(&it.amounts))).collect();
    words.join(", ")
}

fn free_capacity(capacity: &CapacityReport, to: &mut String) {
    let line = |word: &str, text: String| vec![word.to_owned(), text];
    let mut lines = vec![
        line("all nodes", amounts(&capacity.total)),
        line("free for it", amounts(&capacity.free)),
        line("reserved", amounts(&capacity.reserved)),
    ];
    if !capacity.reserved_by.is_empty() {
        lines.push(line("  by", shares(&capacity.reserved_by)));
    }
    if !capacity.reclaimable_from.is_empty() {
        lines.push(line("reclaimable", amounts(&capacity.reclaimable)));
        lines.push(line("  from", shares(&capacity.reclaimable_from)));
    }
    lines.push(line("available", amounts(&capacity.available)));
    for lack in &capacity.lacking {
        lines.push(line("missing", lack.clone()));
    }
    columns("capacity", &lines, to);
}

fn quota(charges: &[QuotaCharge], to: &mut String) {
    let mut lines = Vec::new();
    for charge in charges {
        let named = if charge.is_labelled { "" } else { " (no label: the default)" };
        let place = match (&charge.placed, charge.borrows, charge.holds) {
            (None, _, _) => String::new(),
            (Some(_), false, true) => "; holds its own quota".to_owned(),
            (Some(placed), true, true) => format!("; borrows from {placed}"),
            (Some(_), false, false) => "; has quota of its own for it".to_owned(),
            (Some(placed), true, false) => format!("; could borrow from {placed}"),
        };
        let refused = charge.refused.as_ref().map_or_else(String::new, |it| format!("; {it}"));
        lines.push(format!("{} {}{named}{place}{refused}", charge.tree, charge.node));
        for node in &charge.path {
            let hard = if node.hard { ", hard" } else { "" };
            let mut uses = Vec::new();
            for name in node.limit.keys().chain(node.used.keys()) {
                let of = |it: &BTreeMap<String, String>| {
                    it.get(name).cloned().unwrap_or_else(|| "0".to_owned())
                };
                let text = format!("{name} {} of {}", of(&node.used), of(&node.limit));
                if !uses.contains(&text) {
                    uses.push(text);
                }
            }
            let uses = if uses.is_empty() { "no quota".to_owned() } else { uses.join(", ") };
            lines.push(format!("  {}{hard}: {uses}", node.node));
        }
    }
    section("quota", &lines, to);
}

fn unschedulable(pods: &[Unschedulable], to: &mut String) {
    let lines = pods.iter().map(|it| format!("{}: {}", it.pod, it.message));
    section("unschedulable pods", &lines.collect::<Vec<_>>(), to);
}

fn history(events: &[HistoryEvent], now: Timestamp, to: &mut String) {
    let lines = events.iter().map(|event| {
        let at = event.at.map_or_else(|| "-".to_owned(), |it| format_time(it, now));
        let reason = event.reason.clone().unwrap_or_default();
        vec![at, event.kind.clone(), reason, event.message.clone().unwrap_or_default()]
    });
    columns("history", &lines.collect::<Vec<_>>(), to);
}
