//! Runs cases against a server, several at a time, and compares what two servers said.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_testkit::http::{Client, Credentials, Protocol, Target, TargetError};

use crate::case::{Case, CaseError, Outcome};
use crate::compare::{Difference, compare};
use crate::session::{Clients, Session};
use crate::transcript::Transcript;

/// One run of one case.
#[derive(Debug)]
pub struct CaseRun {
    /// The name of the case.
    pub case: &'static str,
    /// What was said, also if the case did not hold.
    pub transcript: Transcript,
    /// Whether it held.
    pub outcome: Outcome,
}

/// The runs of a list of cases against one server, in the order of the list.
#[derive(Debug)]
pub struct Report {
    /// One per case.
    pub runs: Vec<CaseRun>,
}

/// How a list of cases is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'run> {
    /// Tells runs on one server apart: it becomes part of every name. Lower case and digits. Runs
    /// that are compared have labels of one length, or texts that count bytes would differ.
    pub label: &'run str,
    /// The clock for safety nets.
    pub clock: &'run Clock,
}

/// Runs every case once. Cases that do not hold do not stop the others.
///
/// # Errors
/// The target is not usable as it is written.
pub async fn run(
    cases: &[Case],
    target: &Target,
    settings: Settings<'_>,
) -> Result<Report, TargetError> {
    // HTTP/1.1 gives each watch a connection of its own: one that is not read cannot slow others.
    let client = |target: &Target| Client::new(target, Protocol::Http1, settings.clock.clone());
    let nobody = Target { credentials: Credentials::Anonymous, ..target.clone() };
    let clients = Clients { admin: client(target)?, anonymous: client(&nobody)? };
    let server = target.base.split_once("://").map_or("", |(_, server)| server);
    let queue = Mutex::new(cases.iter().enumerate());
    let done = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || async {
        while let Some((index, case)) = next() {
            let place = format!("{}-{}", case.name, settings.label);
            let clock = settings.clock.clone();
            let talk = Session::new(clients.clone(), clock, case.name, &place, server);
            let run = Box::pin(run_case(case, talk)).await;
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, run));
        }
    };
    // Eight at a time: enough to hide the waits of a case that polls, few enough that two cores
    // serve each of them at once.
    tokio::join!(worker(), worker(), worker(), worker(), worker(), worker(), worker(), worker());
    let mut runs = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_by_key(|(index, _)| *index);
    Ok(Report { runs: runs.into_iter().map(|(_, run)| run).collect() })
}

/// Holds one conversation from its namespace to its farewell.
async fn run_case(case: &Case, mut talk: Session) -> CaseRun {
    let mut outcome = talk.begin().await;
    if outcome.is_ok() {
        outcome = (case.run)(&mut talk).await;
    }
    let said = talk.transcript().clone();
    let farewell = talk.end().await.map(drop);
    CaseRun { case: case.name, transcript: said, outcome: outcome.and(farewell) }
}

impl Report {
    /// The runs that did not hold, with the reason.
    pub fn failed(&self) -> impl Iterator<Item = (&CaseRun, &CaseError)> {
        self.runs.iter().filter_map(|run| Some((run, run.outcome.as_ref().err()?)))
    }

    /// Whether every case held.
    #[must_use]
    pub fn all_passed(&self) -> bool {
        self.failed().next().is_none()
    }

    /// Every difference to the runs of the same cases against another server.
    ///
    /// A case that held on one side only is a difference even if its transcripts agree so far.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let mut differences = Vec::new();
        for (real, other) in self.runs.iter().zip(&other.runs) {
            let found = compare(&real.transcript, &other.transcript);
            if found.is_empty() && real.outcome.is_ok() != other.outcome.is_ok() {
                let side = |run: &CaseRun| match &run.outcome {
                    Ok(()) => "held\n".to_owned(),
                    Err(error) => format!("{error}\n"),
                };
                differences.push(Difference {
                    case: real.case.to_owned(),
                    exchange: real.transcript.exchanges.len() + 1,
                    request: "(outcome)".to_owned(),
                    diff: format!("-{}+{}", side(real), side(other)),
                });
            }
            differences.extend(found);
        }
        differences
    }
}

/// Exchanges that are printed of a case that does not hold: the one that failed, and what led to
/// it.
const PRINTED_EXCHANGES: usize = 3;

impl fmt::Display for Report {
    /// Every case that did not hold with the end of its conversation, then one line of counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut failed = 0;
        for (run, error) in self.failed() {
            failed += 1;
            writeln!(
                f,
                "FAILED {}: {}\n{}",
                run.case,
                error_chain(error),
                run.transcript.tail(PRINTED_EXCHANGES)
            )?;
        }
        write!(f, "{} passed, {failed} failed", self.runs.len() - failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::expect_true;

    /// A report of one run that ended like this, without a word said.
    fn report(outcome: Outcome) -> Report {
        let transcript = Transcript::new("a-case", "here", "");
        Report { runs: vec![CaseRun { case: "a-case", transcript, outcome }] }
    }

    #[test]
    fn a_report_counts_and_names_what_failed() {
        let good = report(Ok(()));
        assert!(good.all_passed());
        assert_eq!(good.to_string(), "1 passed, 0 failed");
        let bad = report(expect_true("the fact", false));
        assert!(!bad.all_passed());
        let printed = bad.to_string();
        assert!(
            printed.starts_with("FAILED a-case: the fact: expected yes, found no\n"),
            "{printed}"
        );
        assert!(printed.ends_with("0 passed, 1 failed"), "{printed}");
    }

    #[test]
    fn one_sided_pass_is_a_difference() {
        let (good, bad) = (report(Ok(())), report(expect_true("the fact", false)));
        assert_eq!(good.differences(&report(Ok(()))), []);
        let found = good.differences(&bad);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].diff, "-held\n+the fact: expected yes, found no\n");
    }
}
