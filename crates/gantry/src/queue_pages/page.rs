//! One page about one AppWrapper.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gantry_queue::outlook::{Happens, Row};
use gantry_queue::story::{
    Charge, Event, Item, Pods, Requeuing, Room, Share, Story, Unschedulable,
};
use jiff::Timestamp;

use super::{aligned, length, moment, priority, state};

/// The whole story of one.
#[must_use]
pub fn page(story: &Story, now: Timestamp) -> String {
    let mut text = String::new();
    let row = &story.row;
    let mut facts = Facts(&mut text);
    facts.add("appwrapper", &format!("{} -n {}", row.name, row.namespace));
    facts.add("state", &standing(row, now));
    facts.add("priority", &rank(story));
    facts.maybe("position", row.position.map(|it| format!("{it} of {}", story.waiting)));
    facts.maybe("waits for", waits(row, now));
    facts.maybe("expected", expected(row, now));
    facts.maybe("said", row.message.clone().filter(|_| row.waits_for.is_none()));
    facts.add("demand", &demand(story));
    facts.maybe("pods", pods(&story.pods));
    requeuing(&story.requeuing, now, &mut facts);
    facts.maybe("victims", some(story.victims.join(", ")));
    items(&story.items, &mut text);
    if let Some(room) = &story.room {
        self::room(room, &mut text);
    }
    quota(&story.quota, &mut text);
    unschedulable(&story.pods.unschedulable, &mut text);
    history(&story.history, now, &mut text);
    section("next", &story.advice, &mut text);
    text
}

/// Lines with a word before them.
struct Facts<'a>(&'a mut String);

impl Facts<'_> {
    fn add(&mut self, word: &str, text: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{word:<12}{text}");
    }

    fn maybe(&mut self, word: &str, text: Option<String>) {
        if let Some(text) = text {
            self.add(word, &text);
        }
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|it| !it.is_empty())
}

/// A head with lines below it; nothing where there are none.
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

/// The same with columns.
fn columns(head: &str, lines: &[Vec<String>], to: &mut String) {
    let lines: Vec<String> = aligned(lines).lines().map(str::to_owned).collect();
    section(head, &lines, to);
}

/// A moment, and how far it is.
fn when(at: Timestamp, now: Timestamp) -> String {
    let far = now.duration_since(at);
    let far = if far.is_negative() {
        format!("in {}", length(-far))
    } else {
        format!("{} ago", length(far))
    };
    format!("{} ({far})", moment(at))
}

fn standing(row: &Row, now: Timestamp) -> String {
    let mut text = state(row).to_owned();
    if !row.step.is_empty() && row.step != row.state {
        text = format!("{text}, {}", row.step);
    }
    match row.since {
        Some(since) => format!("{text} since {}", when(since, now)),
        None => text,
    }
}

fn rank(story: &Story) -> String {
    let now = priority(story.row.priority);
    let fixed = story.static_priority;
    match story.slope == 0.0 {
        true => now,
        false => format!("{now} now; spec.priority {fixed}, slope {} a second", story.slope),
    }
}

fn waits(row: &Row, now: Timestamp) -> Option<String> {
    let wait = row.waits_for.as_ref()?;
    let until = wait.until.filter(|it| *it > now);
    let until = until.map(|it| format!("; until {}", when(it, now))).unwrap_or_default();
    Some(format!("{}: {}{until}", wait.reason.word(), wait.message))
}

fn expected(row: &Row, now: Timestamp) -> Option<String> {
    let expected = row.expected?;
    let at = when(expected.at, now);
    Some(match expected.what {
        Happens::Starts => "starts now".to_owned(),
        Happens::StartsNotBefore => format!("starts not before {at}"),
        Happens::StartsAfterDeadlines => {
            format!("starts about {at}, when others have run for as long as they may")
        }
        Happens::EndsAtLatest => format!("ends by {at}: it may run no longer"),
    })
}

fn amounts(amounts: &BTreeMap<String, String>) -> String {
    let words: Vec<String> =
        amounts.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn demand(story: &Story) -> String {
    format!("{} (demandInference: {})", amounts(&story.demand), story.inference)
}

fn pods(pods: &Pods) -> Option<String> {
    let counts = [
        (pods.pending, "pending"),
        (pods.running, "running"),
        (pods.succeeded, "succeeded"),
        (pods.failed, "failed"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let mut counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
    if !pods.unreachable.is_empty() {
        counts.push(format!("{} on nodes that are not ready or gone", pods.unreachable.len()));
    }
    some(counts.join(", "))
}

fn requeuing(rule: &Requeuing, now: Timestamp, facts: &mut Facts<'_>) {
    let Requeuing { min_available, wait_seconds, so_far, most, next_check, deadline } = rule;
    let most = most.map_or_else(String::new, |it| format!(" of {it}"));
    let check = next_check.map_or_else(String::new, |it| format!(", looked at {}", when(it, now)));
    if *min_available > 0 {
        let text = format!(
            "if fewer than {min_available} pods run after {wait_seconds}s{check}; {so_far}{most} so far"
        );
        facts.add("requeued", &text);
    } else if *so_far > 0 {
        facts.add("requeued", &format!("{so_far}{most} so far"));
    }
    facts.maybe("deadline", deadline.map(|it| when(it, now)));
}

fn items(items: &[Item], to: &mut String) {
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

fn shares(shares: &[Share]) -> String {
    let words: Vec<String> =
        shares.iter().map(|it| format!("{} ({})", it.who, amounts(&it.amounts))).collect();
    words.join(", ")
}

fn room(room: &Room, to: &mut String) {
    let line = |word: &str, text: String| vec![word.to_owned(), text];
    let mut lines = vec![
        line("all nodes", amounts(&room.total)),
        line("free for it", amounts(&room.free)),
        line("reserved", amounts(&room.reserved)),
    ];
    if !room.reserved_by.is_empty() {
        lines.push(line("  by", shares(&room.reserved_by)));
    }
    if !room.reclaimable_from.is_empty() {
        lines.push(line("reclaimable", amounts(&room.reclaimable)));
        lines.push(line("  from", shares(&room.reclaimable_from)));
    }
    lines.push(line("available", amounts(&room.available)));
    for lack in &room.lacking {
        lines.push(line("missing", lack.clone()));
    }
    columns("room", &lines, to);
}

fn quota(charges: &[Charge], to: &mut String) {
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
    section("pods that no node takes", &lines.collect::<Vec<_>>(), to);
}

fn history(events: &[Event], now: Timestamp, to: &mut String) {
    let lines = events.iter().map(|event| {
        let at = event.at.map_or_else(|| "-".to_owned(), |it| when(it, now));
        let reason = event.reason.clone().unwrap_or_default();
        vec![at, event.kind.clone(), reason, event.message.clone().unwrap_or_default()]
    });
    columns("history", &lines.collect::<Vec<_>>(), to);
}
