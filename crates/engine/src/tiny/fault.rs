//! Faults that an engine is asked to have. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It ends with an error before it listens.
    CrashBeforeListening,
    /// It is killed this long after it listens.
    CrashAfter,
    /// It is killed by `/wake_up`.
    CrashInWake,
    /// It is killed by `/sleep`.
    CrashInSleep,
    /// It never listens.
    NeverListen,
    /// `/sleep` fails, so many times.
    RefuseSleep,
    /// `/wake_up` fails for want of memory, so many times.
    RefuseWake,
    /// After a wake failed every further one fails.
    WedgeAfterWake,
    /// Loading takes so much longer.
    SlowStart,
    /// `/sleep` takes so much longer.
    SlowSleep,
    /// `/wake_up` takes so much longer.
    SlowWake,
    /// SIGTERM is ignored.
    IgnoreTerminate,
    /// It ends without ending its child.
    LeaveChild,
    /// It writes so many bytes to its log before it listens.
    FillLog,
}

/// The kind of value that a fault takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Time,
    /// A number; without one always.
    OptionalCount,
    Count,
}

const FAULTS: [(&str, Fault, Takes); 14] = [
    ("crash-before-listening", Fault::CrashBeforeListening, Takes::Nothing),
    ("crash-after", Fault::CrashAfter, Takes::Time),
    ("crash-in-wake", Fault::CrashInWake, Takes::Nothing),
    ("crash-in-sleep", Fault::CrashInSleep, Takes::Nothing),
    ("never-listen", Fault::NeverListen, Takes::Nothing),
    ("refuse-sleep", Fault::RefuseSleep, Takes::OptionalCount),
    ("refuse-wake", Fault::RefuseWake, Takes::OptionalCount),
    ("wedge-after-wake", Fault::WedgeAfterWake, Takes::Nothing),
    ("slow-start", Fault::SlowStart, Takes::Time),
    ("slow-sleep", Fault::SlowSleep, Takes::Time),
    ("slow-wake", Fault::SlowWake, Takes::Time),
    ("ignore-terminate", Fault::IgnoreTerminate, Takes::Nothing),
    ("leave-child", Fault::LeaveChild, Takes::Nothing),
    ("fill-log", Fault::FillLog, Takes::Count),
];

/// The faults of an engine, each with its value: milliseconds or a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(BTreeMap<Fault, u64>);

impl Faults {
    /// Reads faults: `name` or `name=value`, separated by commas. Times are like `1s` or `50ms`.
    ///
    /// # Errors
    /// Which one is not known, or has a wrong value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut faults = BTreeMap::new();
        for item in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (item, None),
            };
            let Some((_, fault, takes)) = FAULTS.iter().find(|it| it.0 == name) else {
                let known: Vec<&str> = FAULTS.iter().map(|it| it.0).collect();
                return Err(format!("fault {name:?} is not one of {}", known.join(", ")));
            };
            let wrong = |expected: &str| format!("fault {name} needs {expected}, not {item:?}");
            let value = match (takes, value) {
                (Takes::Nothing, None) => 1,
                (Takes::OptionalCount, None) => u64::MAX,
                (Takes::Nothing, Some(_)) => return Err(wrong("no value")),
                (Takes::Count | Takes::OptionalCount, Some(value)) => {
                    value.parse().map_err(|_| wrong("a number"))?
                }
                (Takes::Count, None) => return Err(wrong("a number")),
                (Takes::Time, value) => {
                    let time = value.and_then(parse_time);
                    let time = time.ok_or_else(|| wrong("a time like 2s or 50ms"))?;
                    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
                }
            };
            faults.insert(*fault, value);
        }
        Ok(Self(faults))
    }

    /// Whether it has a fault.
    #[must_use]
    pub fn has(&self, fault: Fault) -> bool {
        self.0.contains_key(&fault)
    }

    /// Returns the number of a fault, or zero.
    #[must_use]
    pub fn count(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    /// Returns the time of a fault, or none.
    #[must_use]
    pub fn time(&self, fault: Fault) -> Duration {
        Duration::from_millis(self.count(fault))
    }

    /// Uses a fault up by one, and returns whether there was one.
    pub fn consume(&mut self, fault: Fault) -> bool {
        match self.0.get_mut(&fault) {
            None | Some(0) => false,
            Some(left) => {
                // Without a number it is never used up.
                if *left != u64::MAX {
                    *left -= 1;
                }
                true
            }
        }
    }
}

/// Reads a time that is not negative.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    Duration::try_from(text.parse::<jiff::SignedDuration>().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_used_up() {
        let mut faults = Faults::parse("refuse-wake=2, slow-sleep=1s,never-listen").unwrap();
        assert!(faults.has(Fault::NeverListen));
        assert!(!faults.has(Fault::CrashInWake));
        assert_eq!(faults.time(Fault::SlowSleep), Duration::from_secs(1));
        assert_eq!(faults.time(Fault::SlowWake), Duration::ZERO);
        let used: Vec<bool> = (0..3).map(|_| faults.consume(Fault::RefuseWake)).collect();
        assert_eq!(used, [true, true, false]);
        let mut always = Faults::parse("refuse-sleep").unwrap();
        assert!((0..9).all(|_| always.consume(Fault::RefuseSleep)));
        assert_eq!(Faults::parse("").unwrap(), Faults::default());
    }

    #[test]
    fn a_wrong_fault_is_refused_with_the_reason() {
        for (text, expected) in [
            ("nope", "is not one of crash-before-listening, "),
            ("crash-after", "needs a time like"),
            ("crash-after=-1s", "needs a time like"),
            ("fill-log", "needs a number"),
            ("refuse-wake=x", "needs a number"),
            ("never-listen=1", "needs no value"),
        ] {
            assert!(Faults::parse(text).unwrap_err().contains(expected), "{text}");
        }
    }
}
