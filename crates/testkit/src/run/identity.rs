//! Identifies a process for good: a pid is reused, a pid with its start time is not.

use std::fmt;
use std::fs;
use std::str::FromStr;

/// A process, distinguished from every other that has or will have its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The process id.
    pub pid: i32,
    /// Clock ticks between the start of the machine and that of the process.
    pub started: u64,
}

impl Identity {
    /// This process.
    #[must_use]
    pub fn current() -> Option<Self> {
        Self::from_stat(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// Returns whether this very process still runs. A zombie does not.
    #[must_use]
    pub fn is_running(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| !is_dead(&stat) && Self::from_stat(&stat) == Some(self))
    }

    /// Parses a line of `/proc/<pid>/stat`.
    pub(super) fn from_stat(stat: &str) -> Option<Self> {
        let pid = stat.split(' ').next()?.parse().ok().filter(|pid| *pid > 0)?;
        let started = after_name(stat)?.nth(19)?.parse().ok()?;
        Some(Self { pid, started })
    }
}

/// Returns the fields after the program's name, which is in brackets and may contain spaces and
/// brackets.
fn after_name(stat: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

fn is_dead(stat: &str) -> bool {
    let state = after_name(stat).and_then(|mut fields| fields.next());
    matches!(state, None | Some("Z" | "X"))
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.pid, self.started)
    }
}

impl FromStr for Identity {
    type Err = InvalidIdentity;

    /// Parses what `Display` writes; further parts after more dashes are ignored.
    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let mut parts = text.split('-');
        let pid = parts.next().and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0);
        let started = parts.next().and_then(|started| started.parse().ok());
        Ok(Self { pid: pid.ok_or(InvalidIdentity)?, started: started.ok_or(InvalidIdentity)? })
    }
}

/// The text does not identify a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read a pid and a start time")]
pub struct InvalidIdentity;

#[cfg(test)]
mod tests {
    use super::*;

    /// A line as Linux writes it, for a program of any name, in any state.
    fn stat(name: &str, state: &str) -> String {
        let fields = "1 41 41 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 9876 2 3 4";
        format!("41 ({name}) {state} {fields}")
    }

    #[test]
    fn the_start_time_is_found_whatever_the_program_is_called() {
        let expected = Some(Identity { pid: 41, started: 9876 });
        for name in ["etcd", "a b", "a) S 1 (b", ")"] {
            assert_eq!(Identity::from_stat(&stat(name, "S")), expected, "{name}");
        }
        for broken in ["", "41", "41 (etcd", "41 (etcd) S 1 2", "0 (a) S", "x (a) S 1"] {
            assert_eq!(Identity::from_stat(broken), None, "{broken}");
        }
    }

    #[test]
    fn dead_processes_are_not_running() {
        for (state, dead) in [("S", false), ("R", false), ("D", false), ("Z", true), ("X", true)] {
            assert_eq!(is_dead(&stat("a", state)), dead, "{state}");
        }
        assert!(is_dead(""), "nothing is known of it");
    }

    #[test]
    fn an_identity_is_read_as_it_is_written() {
        let identity = Identity { pid: 41, started: 9876 };
        assert_eq!(identity.to_string().parse(), Ok(identity));
        assert_eq!("41-9876-3".parse(), Ok(identity), "the name of a run's folder");
        for broken in ["", "41", "41-", "-1-5", "0-5", "a-b", "lost+found"] {
            assert_eq!(broken.parse::<Identity>(), Err(InvalidIdentity), "{broken}");
        }
    }

    #[test]
    fn identity_includes_the_start_time() {
        let us = Identity::current().unwrap();
        assert!(us.is_running());
        assert!(!Identity { started: us.started + 1, ..us }.is_running(), "a later one");
        assert!(!Identity { pid: i32::MAX, ..us }.is_running(), "no such pid");
    }
}
