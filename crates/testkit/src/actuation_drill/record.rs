//! What the ledgers of accelerators say about who was awake when.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// What happened on all accelerators of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AwakeRecord {
    /// How often an engine was started.
    pub(super) started: usize,
    /// How often one was woken.
    pub(super) woken: usize,
    /// How many are awake at the end of the record.
    pub(super) awake: usize,
}

impl AwakeRecord {
    /// Reads the ledgers of a directory. No directory is no engine yet.
    ///
    /// The error names two engines that were awake at one time.
    pub(super) fn read(directory: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            entries => entries.map_err(failed)?,
        };
        let mut all = Self::default();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            // What was moved to an older file would be missed.
            if path.extension().is_some_and(|it| it == "old") {
                return Err(format!("{} is too long for a drill", path.display()));
            }
            if path.extension().is_some_and(|it| it == "ledger") {
                let text = std::fs::read_to_string(&path).map_err(failed)?;
                let one = Self::parse(&text)?;
                all.started += one.started;
                all.woken += one.woken;
                all.awake += one.awake;
            }
        }
        Ok(all)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut record = Self::default();
        let mut awake: BTreeSet<String> = BTreeSet::new();
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |it| &text[..it]);
        let mut lines = whole.lines();
        let accelerator = lines.next().unwrap_or_default();
        let mut number = 0;
        for line in lines {
            let broken = |why: &str| format!("{accelerator}: {why}: {line}");
            let entry: Value =
                serde_json::from_str(line).map_err(|error| broken(&error.to_string()))?;
            number += 1;
            if entry["number"] != number {
                return Err(broken("a change is missing before"));
            }
            let holder = entry["holder"].as_str().ok_or_else(|| broken("has no holder"))?;
            let is_awake = entry["awake"].as_bool().ok_or_else(|| broken("is neither"))?;
            match is_awake {
                false => drop(awake.remove(holder)),
                true if awake.insert(holder.to_owned()) => match entry["change"].as_str() {
                    Some("wake") => record.woken += 1,
                    _ => record.started += 1,
                },
                true => {}
            }
            if awake.len() > 1 {
                return Err(broken(&format!("two engines are awake: {awake:?}")));
            }
        }
        record.awake = awake.len();
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(changes: &[(&str, &str, bool)]) -> String {
        let mut text = "{\"uuid\":\"GPU-0\",\"index\":0,\"capacity\":1}\n".to_owned();
        for (number, (holder, change, awake)) in (1..).zip(changes) {
            let entry = serde_json::json!({
                "number": number, "holder": holder, "change": change, "awake": awake,
            });
            text.push_str(&format!("{entry}\n"));
        }
        text
    }

    #[test]
    fn two_awake_at_one_time_are_found() {
        let (a, b) = ("a", "b");
        let good = ledger(&[
            (a, "load", true),
            (a, "sleep", false),
            (b, "load", true),
            (b, "reap", false),
            (a, "wake", true),
        ]);
        let expected = AwakeRecord { started: 2, woken: 1, awake: 1 };
        assert_eq!(AwakeRecord::parse(&good), Ok(expected));
        assert_eq!(AwakeRecord::parse(&format!("{good}{{\"numb")), Ok(expected), "half a line");
        let bad = [
            ledger(&[(a, "load", true), (b, "load", true)]),
            ledger(&[(a, "load", true), (a, "sleep", false), (b, "load", true), (a, "wake", true)]),
        ];
        for text in bad {
            let found = AwakeRecord::parse(&text).unwrap_err();
            assert!(found.contains("two engines are awake: {\"a\", \"b\"}"), "{found}");
        }
        let gap = good.replace("\"number\":3", "\"number\":4");
        assert!(AwakeRecord::parse(&gap).unwrap_err().contains("a change is missing"));
    }
}
