//! Reads what `init` prints: first facts about the kernel, then every attempt.

use std::time::Duration;

/// What a kernel did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootOutcome {
    /// How long the machine ran.
    pub took: Duration,
    /// The release that really ran.
    pub release: String,
    /// Whether modules must be signed (`module.sig_enforce`).
    pub enforced: bool,
    /// The levels of lockdown, the active one in brackets; empty if the kernel has none.
    pub lockdown: String,
    /// The asymmetric keys of all keyrings, as `/proc/keys` lists them.
    pub keys: Vec<String>,
    /// The kernel's messages until the first attempt.
    pub messages: Vec<String>,
    /// The attempts, in order.
    pub attempts: Vec<AttemptOutcome>,
}

/// What became of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptOutcome {
    /// The name that the test gave it.
    pub name: String,
    /// The error number of a system call, or the exit code of a program; 0 is success.
    pub status: i32,
    /// The words for the error number, or what the program printed.
    pub output: String,
    /// The modules that were loaded afterwards. They are unloaded before the next attempt.
    pub loaded: Vec<String>,
    /// The kernel's taint so far: it is never removed.
    pub taint: u64,
    /// The kernel's messages during the attempt, without their time.
    pub messages: Vec<String>,
}

impl AttemptOutcome {
    /// Whether a module was loaded.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        !self.loaded.is_empty()
    }

    /// Whether the kernel said this, or a line with it.
    #[must_use]
    pub fn has_message(&self, words: &str) -> bool {
        self.messages.iter().any(|message| message.contains(words))
    }
}

impl BootOutcome {
    /// Reads the lines of `init`; `names` are the attempts that were to be made.
    pub(super) fn parse(output: &str, names: &[String]) -> Result<Self, OutcomeError> {
        let mut outcome = Self::default();
        let mut ended = false;
        // The serial port ends lines as terminals do.
        let lines = output.lines().map(|line| line.trim_end_matches('\r'));
        // The firmware clears the screen of every port.
        for line in lines.skip_while(|line| *line != "begin").skip(1) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let unreadable = || OutcomeError::Unreadable { line: line.to_owned() };
            if word == "attempt" {
                let number = outcome.attempts.len();
                let name = names.get(number).filter(|_| rest == number.to_string());
                let name = name.ok_or_else(unreadable)?.clone();
                outcome.attempts.push(AttemptOutcome { name, ..AttemptOutcome::default() });
                continue;
            }
            let understood = match (word, outcome.attempts.last_mut()) {
                ("end", _) => {
                    ended = true;
                    true
                }
                (_, Some(attempt)) => attempt.read(word, rest),
                (_, None) => outcome.read(word, rest),
            };
            if !understood {
                return Err(unreadable());
            }
        }
        if !ended || outcome.attempts.len() != names.len() {
            let (made, expected) = (outcome.attempts.len(), names.len());
            return Err(OutcomeError::Unfinished { made, expected });
        }
        Ok(outcome)
    }

    fn read(&mut self, word: &str, rest: &str) -> bool {
        match word {
            "release" => rest.clone_into(&mut self.release),
            "enforced" => self.enforced = rest == "Y",
            "lockdown" => rest.clone_into(&mut self.lockdown),
            "key" => self.keys.push(rest.to_owned()),
            "message" => self.messages.push(without_time(rest)),
            _ => return false,
        }
        true
    }
}

impl AttemptOutcome {
    fn read(&mut self, word: &str, rest: &str) -> bool {
        match word {
            "status" => match rest.parse() {
                Ok(status) => self.status = status,
                Err(_) => return false,
            },
            "taint" => match rest.parse() {
                Ok(taint) => self.taint = taint,
                Err(_) => return false,
            },
            "output" => {
                if !self.output.is_empty() {
                    self.output.push('\n');
                }
                self.output.push_str(rest);
            }
            "loaded" => self.loaded.push(rest.to_owned()),
            "message" => self.messages.push(without_time(rest)),
            _ => return false,
        }
        true
    }
}

/// Removes the time in brackets, which differs from run to run.
fn without_time(message: &str) -> String {
    let text = message.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    text.map_or(message, |(_, text)| text).to_owned()
}

/// Why the output of a boot cannot be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OutcomeError {
    /// The machine ended before all attempts were made.
    #[error("could not make all attempts: {made} of {expected} were begun")]
    Unfinished {
        /// How many were begun.
        made: usize,
        /// How many there are.
        expected: usize,
    },
    /// A line is not one of those that `init` prints.
    #[error("cannot read the line {line:?}")]
    Unreadable {
        /// The line.
        line: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\u{1b}[2J\u{1b}[01;01H\r\n\
        begin\r\n\
        release 6.1.0-1-cloud-amd64\r\n\
        enforced Y\r\n\
        lockdown [none] integrity confidentiality\r\n\
        key 2b5c asymmetri ours: 1234: X509.rsa []\r\n\
        message [    0.000000] Linux version 6.1\r\n\
        message \r\n\
        attempt 0\r\n\
        status 129\r\n\
        output Key was rejected by service\r\n\
        taint 0\r\n\
        message [    3.1] Loading of unsigned module is rejected\r\n\
        attempt 1\r\n\
        status 0\r\n\
        loaded crc_itu_t\r\n\
        taint 4096\r\n\
        end\r\n";

    fn names() -> Vec<String> {
        ["unsigned", "signed"].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_boot_is_read() {
        let outcome = BootOutcome::parse(OUTPUT, &names()).unwrap();
        assert_eq!(outcome.release, "6.1.0-1-cloud-amd64");
        assert!(outcome.enforced);
        assert_eq!(outcome.lockdown, "[none] integrity confidentiality");
        assert_eq!(outcome.keys, ["2b5c asymmetri ours: 1234: X509.rsa []"]);
        assert_eq!(outcome.messages, ["Linux version 6.1", ""]);
        let expected = [
            AttemptOutcome {
                name: "unsigned".to_owned(),
                status: 129,
                output: "Key was rejected by service".to_owned(),
                messages: vec!["Loading of unsigned module is rejected".to_owned()],
                ..AttemptOutcome::default()
            },
            AttemptOutcome {
                name: "signed".to_owned(),
                loaded: vec!["crc_itu_t".to_owned()],
                taint: 4096,
                ..AttemptOutcome::default()
            },
        ];
        assert_eq!(outcome.attempts, expected);
        assert!(outcome.attempts[0].has_message("unsigned module"));
        assert!(!outcome.attempts[0].is_loaded() && outcome.attempts[1].is_loaded());
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_an_error() {
        let unreadable = |line: &str| OutcomeError::Unreadable { line: line.to_owned() };
        let table = [
            ("nothing", "", OutcomeError::Unfinished { made: 0, expected: 2 }),
            ("only the firmware", "\u{1b}[2J", OutcomeError::Unfinished { made: 0, expected: 2 }),
            (
                "no end",
                &OUTPUT[..OUTPUT.len() - 5],
                OutcomeError::Unfinished { made: 2, expected: 2 },
            ),
            ("too few", "begin\nattempt 0\nend", OutcomeError::Unfinished { made: 1, expected: 2 }),
            ("another number", "begin\nattempt 1", unreadable("attempt 1")),
            ("another word", "begin\nattempt 0\nhello 1", unreadable("hello 1")),
            ("a fact too late", "begin\nattempt 0\nenforced Y", unreadable("enforced Y")),
            ("no number", "begin\nattempt 0\nstatus x", unreadable("status x")),
            ("too many", "begin\nattempt 0\nattempt 1\nattempt 2", unreadable("attempt 2")),
        ];
        for (why, output, expected) in table {
            assert_eq!(BootOutcome::parse(output, &names()), Err(expected), "{why}");
        }
    }
}
