//! The recap of a run, and its events.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// How the steps of a host ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecapCounts {
    /// Steps that are satisfied, those that changed something included.
    pub ok: u32,
    /// Steps that changed something.
    pub changed: u32,
    /// 1 if the host could not be reached.
    pub unreachable: u32,
    /// Steps that failed.
    pub failed: u32,
    /// Steps that do not apply.
    pub skipped: u32,
    /// Steps that failed and were undone.
    pub rescued: u32,
    /// Steps that failed and are optional.
    pub ignored: u32,
}

/// Columns of the name of a host.
const NAME_WIDTH: usize = 26;
/// Columns of the line above.
const LINE_WIDTH: usize = 79;

/// The recap, byte for byte as the original prints it.
#[must_use]
pub fn recap(hosts: &[(String, RecapCounts)]) -> String {
    let title = "PLAY RECAP ";
    let stars = "*".repeat(LINE_WIDTH - title.len());
    let mut text = format!("\n{title}{stars}\n");
    for (name, counts) in hosts {
        let RecapCounts { ok, changed, unreachable, failed, skipped, rescued, ignored } = counts;
        let _ = writeln!(
            text,
            "{name:<NAME_WIDTH$} : ok={ok:<4} changed={changed:<4} unreachable={unreachable:<4} \
             failed={failed:<4} skipped={skipped:<4} rescued={rescued:<4} ignored={ignored:<4}"
        );
    }
    text.push('\n');
    text
}

/// A line of `--output ndjson`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// The version of the form; fields are only added to it.
    pub v: u32,
    /// The run.
    pub run: String,
    /// The time, as RFC 3339.
    pub t: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run begins.
    Plan {
        /// The cluster.
        cluster: String,
        /// The number of hosts.
        hosts: usize,
        /// The ids of the selected steps.
        steps: Vec<String>,
        /// Whether nothing is changed.
        check: bool,
    },
    /// A stage begins.
    StageStart {
        /// Its name.
        stage: String,
    },
    /// A step has ended on a host.
    Step {
        /// The host.
        host: String,
        /// The step.
        step: String,
        /// `ok`, `changed`, `skipped`, `failed`, `unreachable` or `ignored`.
        outcome: String,
        /// Why.
        reason: String,
        /// What was or would be changed, in words.
        changes: Vec<String>,
    },
    /// A step cannot run.
    Held {
        /// The host.
        host: String,
        /// The step.
        step: String,
        /// Why.
        reason: String,
    },
    /// How it ended, by host.
    Recap {
        /// The counts.
        hosts: std::collections::BTreeMap<String, RecapCounts>,
    },
    /// The run has ended.
    End {
        /// The exit code.
        exit: u8,
    },
}

impl EventLine {
    /// The line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pvs_2_the_recap_has_the_columns_of_the_original() {
        let counts = RecapCounts { ok: 38, changed: 12, skipped: 3, ..RecapCounts::default() };
        let text = recap(&[("dgx-a".to_owned(), counts)]);
        let expected = "\nPLAY RECAP ********************************************************************\
                        \ndgx-a                      : ok=38   changed=12   unreachable=0    \
                        failed=0    skipped=3    rescued=0    ignored=0   \n\n";
        assert_eq!(text, expected);
        assert_eq!(text.lines().nth(2).and_then(|line| line.find(':')), Some(27));
        let long = "a".repeat(30);
        assert!(recap(&[(long.clone(), counts)]).contains(&format!("\n{long} : ok=38")));
    }

    #[test]
    fn pvs_2_events_are_lines_of_json() {
        let line = EventLine {
            v: 1,
            run: "r".to_owned(),
            t: "2026-01-01T00:00:00Z".to_owned(),
            event: Event::Held {
                host: "a".to_owned(),
                step: "dns".to_owned(),
                reason: "x\ny".to_owned(),
            },
        };
        let expected = "{\"v\":1,\"run\":\"r\",\"t\":\"2026-01-01T00:00:00Z\",\"event\":\"held\",\
                        \"host\":\"a\",\"step\":\"dns\",\"reason\":\"x\\ny\"}\n";
        assert_eq!(line.line(), expected);
        assert_eq!(serde_json::from_str::<EventLine>(expected).unwrap(), line);
    }
}
