//! The properties that are proven about a scenario.

use std::ops::Range;

use serde_json::Value;

use super::simulation::{self, CompletedRun, Conditions};
use super::{
    CONFLICTED_PREFIX, Crash, Failure, Faults, FinalState, InFlightRequests, REFUSED_PREFIX,
    Scenario, Server, UNREADABLE_PREFIX,
};
use gantry_reconcile::object::Resource;

impl Scenario<'_> {
    /// Runs once.
    ///
    /// # Errors
    /// [`Failure::Unsettled`] when there is always something left to do.
    pub fn run(&self, seed: u64, faults: Faults) -> Result<FinalState, Box<Failure>> {
        simulation::run(self, self.conditions(seed, faults)).map(|run| run.final_state)
    }

    /// Proves that every run ends in the same state as the run without faults, as far as `shape`
    /// tells: for each seed with all kinds of faults, once as the scenario is and once with one
    /// more process that believes to be the leader, and for the first seed with a [crash at every
    /// move](Scenario::prove_crashes). In the end a restart must find nothing to do.
    ///
    /// # Errors
    /// The first run that failed.
    pub fn prove(
        &self,
        seeds: Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        self.prove_faults(seeds.clone(), &shape)?;
        self.prove_crashes(seeds.start, shape)
    }

    /// Proves the same for controllers that always have something to do, such as those that renew a
    /// heartbeat: a restart may write.
    ///
    /// # Errors
    /// The first run that ended in another state.
    pub fn prove_without_quiescence(
        &self,
        seeds: Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        self.check_faults(seeds.clone(), &shape, Quiescence::NotRequired)?;
        self.check_crashes(seeds.start, &shape, Quiescence::NotRequired)
    }

    /// Proves what [`prove`](Scenario::prove) does, except for the crash at every move.
    ///
    /// # Errors
    /// The first run that ended in another state.
    pub fn prove_faults(
        &self,
        seeds: Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        self.check_faults(seeds, &shape, Quiescence::Required)
    }

    /// Proves that a process may crash after every single move of a run without other faults: each
    /// time with its requests in flight lost, and if there were any also with those arriving late.
    /// Moves without an effect outside the process are skipped: a crash after one of them is the
    /// same as a crash before it.
    ///
    /// # Errors
    /// The first run that ended in another state than the one without a crash.
    pub fn prove_crashes(
        &self,
        seed: u64,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        self.check_crashes(seed, &shape, Quiescence::Required)
    }

    /// Proves that bad objects do not affect others: with them in the world, each seed ends in the
    /// same state for the other objects as the run without them, and in the end each bad object has
    /// the right held reason.
    ///
    /// The name of a bad object says what is wrong with it. If it begins with [`REFUSED_PREFIX`],
    /// every write to it and to every object created under its name is refused as invalid; with
    /// [`CONFLICTED_PREFIX`] every such write conflicts; and with [`UNREADABLE_PREFIX`] the object
    /// cannot be decoded into its view, which the caller must arrange. `shape` must leave the bad
    /// objects out.
    ///
    /// # Errors
    /// The first run that failed.
    pub fn prove_isolation(
        &self,
        bad: &[(Resource, Value)],
        seeds: Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        let calm = self.conditions(seeds.start, Faults::none());
        let expected = self.run_without_faults(calm, &shape, Quiescence::NotRequired)?.1;
        for seed in seeds {
            for faults in [Faults::none(), Faults::random()] {
                let conditions = Conditions { seed, faults, bad, ..calm };
                let run = simulation::run(self, conditions)?;
                check_same_end(conditions, &run, &shape, &expected)?;
                for (_, object) in bad {
                    check_held(conditions, object, &run.final_state)?;
                }
            }
        }
        Ok(())
    }

    fn check_faults(
        &self,
        seeds: Range<u64>,
        shape: &dyn Fn(&Server) -> Value,
        rest: Quiescence,
    ) -> Result<(), Box<Failure>> {
        let calm = self.conditions(seeds.start, Faults::none());
        let expected = self.run_without_faults(calm, shape, rest)?.1;
        for seed in seeds {
            let alone = self.conditions(seed, Faults::random());
            let two = Conditions { replicas: alone.replicas + 1, ..alone };
            self.check(alone, shape, &expected, rest)?;
            self.check(two, shape, &expected, rest)?;
        }
        Ok(())
    }

    fn check_crashes(
        &self,
        seed: u64,
        shape: &dyn Fn(&Server) -> Value,
        rest: Quiescence,
    ) -> Result<(), Box<Failure>> {
        let calm = self.conditions(seed, Faults::none());
        let (run, expected) = self.run_without_faults(calm, shape, rest)?;
        for death in run.crash_points {
            let late = death.has_in_flight.then_some(InFlightRequests::Late);
            for sent in [InFlightRequests::Lost].into_iter().chain(late) {
                let crash = Some(Crash { after: death.after, in_flight: sent });
                let faults = Faults { crash, ..Faults::none() };
                self.check(Conditions { faults, ..calm }, shape, &expected, rest)?;
            }
        }
        Ok(())
    }

    fn conditions(&self, seed: u64, faults: Faults) -> Conditions<'static> {
        Conditions { seed, faults, replicas: self.replicas, bad: &[] }
    }

    /// The run without faults, and its final state.
    fn run_without_faults(
        &self,
        conditions: Conditions<'_>,
        shape: &dyn Fn(&Server) -> Value,
        rest: Quiescence,
    ) -> Result<(CompletedRun, Value), Box<Failure>> {
        let run = simulation::run(self, conditions)?;
        check_quiescent(conditions, &run.final_state, rest)?;
        let expected = shape(&run.final_state.server);
        Ok((run, expected))
    }

    fn check(
        &self,
        conditions: Conditions<'_>,
        shape: &dyn Fn(&Server) -> Value,
        expected: &Value,
        rest: Quiescence,
    ) -> Result<(), Box<Failure>> {
        let run = simulation::run(self, conditions)?;
        check_same_end(conditions, &run, shape, expected)?;
        check_quiescent(conditions, &run.final_state, rest)
    }
}

/// Proves for random worlds that each ends in one state, whatever goes wrong: each is run without
/// faults, with all kinds of them, with one more process that believes to be the leader, and with a
/// crash after one of its moves.
///
/// # Errors
/// The first run that failed.
pub fn prove_worlds<'a>(
    seeds: Range<u64>,
    world: impl Fn(u64) -> Scenario<'a>,
    shape: impl Fn(&Server) -> Value,
) -> Result<(), Box<Failure>> {
    for seed in seeds {
        let scenario = world(seed);
        let calm = scenario.conditions(seed, Faults::none());
        let (run, expected) = scenario.run_without_faults(calm, &shape, Quiescence::Required)?;
        let check =
            |conditions| scenario.check(conditions, &shape, &expected, Quiescence::Required);
        let faults = Faults::random();
        check(Conditions { faults, ..calm })?;
        check(Conditions { faults, replicas: calm.replicas + 1, ..calm })?;
        let nth = usize::try_from(seed.wrapping_mul(31)).unwrap_or_default();
        if let Some(death) = run.crash_points.get(nth % run.crash_points.len().max(1)) {
            let crash = Some(Crash { after: death.after, in_flight: InFlightRequests::Late });
            let faults = Faults { crash, ..Faults::none() };
            check(Conditions { faults, ..calm })?;
        }
    }
    Ok(())
}

/// Whether a restart must find nothing to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quiescence {
    Required,
    NotRequired,
}

fn check_same_end(
    conditions: Conditions<'_>,
    run: &CompletedRun,
    shape: &dyn Fn(&Server) -> Value,
    expected: &Value,
) -> Result<(), Box<Failure>> {
    let Conditions { seed, faults, .. } = conditions;
    let witness = TraceOnPanic(conditions, &run.trace);
    let found = shape(&run.final_state.server);
    drop(witness);
    if found == *expected {
        return Ok(());
    }
    let (expected, trace) = (expected.clone(), run.trace.clone());
    Err(Box::new(Failure::Diverged { seed, faults, expected, found, trace }))
}

/// Prints the trace if `shape` panics, as it does when a property that must hold at every moment
/// does not.
struct TraceOnPanic<'a>(Conditions<'a>, &'a str);

impl Drop for TraceOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(Conditions { seed, faults, replicas, .. }, trace) = self;
            eprintln!("seed {seed}, {replicas} processes, {faults:?}:\n{trace}");
        }
    }
}

fn check_quiescent(
    conditions: Conditions<'_>,
    ending: &FinalState,
    rest: Quiescence,
) -> Result<(), Box<Failure>> {
    let Conditions { seed, faults, .. } = conditions;
    let is_quiet = ending.writes_after_restart.is_empty() && ending.calls_after_restart.is_empty();
    if is_quiet || rest == Quiescence::NotRequired {
        return Ok(());
    }
    let (writes, calls) = (ending.writes_after_restart.clone(), ending.calls_after_restart.clone());
    Err(Box::new(Failure::NotQuiescent { seed, faults, writes, calls }))
}

/// Checks that a bad object has the right held reason.
fn check_held(
    conditions: Conditions<'_>,
    object: &Value,
    ending: &FinalState,
) -> Result<(), Box<Failure>> {
    let Conditions { seed, faults, .. } = conditions;
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let reasons = [
        (REFUSED_PREFIX, "Invalid"),
        (CONFLICTED_PREFIX, "Conflict"),
        (UNREADABLE_PREFIX, "Unreadable"),
    ];
    let wrong = reasons.into_iter().find(|(prefix, _)| name.starts_with(prefix));
    let reason = wrong.map_or("what is wrong", |(_, reason)| reason);
    let is_said = ending.held.iter().any(|held| {
        let key = &held.about.key;
        held.reason == reason
            && [key.name(), key.namespace()].iter().any(|it| it.starts_with(&name))
    });
    let held = ending.held.clone();
    match is_said {
        true => Ok(()),
        false => Err(Box::new(Failure::MissingHeldReason { seed, faults, name, reason, held })),
    }
}
