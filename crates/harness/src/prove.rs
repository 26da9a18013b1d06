//! What is proven about a scenario.

use std::ops::Range;

use serde_json::Value;

use super::trial::{self, Conditions, Run};
use super::{
    CONFLICTED, Crash, Ending, Failure, Faults, REFUSED, Scenario, Sent, Server, UNREADABLE,
};
use gantry_reconcile::object::Resource;

impl Scenario<'_> {
    /// Runs once.
    ///
    /// # Errors
    /// [`Failure::Unsettled`] when there is always something left to do.
    pub fn run(&self, seed: u64, faults: Faults) -> Result<Ending, Box<Failure>> {
        trial::run(self, self.conditions(seed, faults)).map(|run| run.ending)
    }

    /// Proves that every run ends where the run without faults does, as far as `shape` tells: for
    /// each seed with all kinds of faults, once as the scenario is and once with a process more that
    /// believes to lead, and for the first with a [crash at every move](Scenario::prove_crashes). In
    /// the end a fresh start must find nothing to do.
    ///
    /// # Errors
    /// The first run that did not.
    pub fn prove(
        &self,
        seeds: Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        self.prove_faults(seeds.clone(), &shape)?;
        self.prove_crashes(seeds.start, shape)
    }

    /// Proves the same where somebody always has something to do, as those who show that they live:
    /// a fresh start may write.
    ///
    /// # Errors
    /// The first run that did not end where it should.
    pub fn prove_restless(
        &self,
        seeds: Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        self.faults(seeds.clone(), &shape, Rest::Unneeded)?;
        self.crashes(seeds.start, &shape, Rest::Unneeded)
    }

    /// Proves what [`prove`](Scenario::prove) does, but for the crash at every move.
    ///
    /// # Errors
    /// The first run that did not end where it should.
    pub fn prove_faults(
        &self,
        seeds: Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        self.faults(seeds, &shape, Rest::Needed)
    }

    /// Proves that a process may die after every single move of a run in which nothing else goes
    /// wrong: each time with what it had sent lost, and if there was any also with that coming late.
    /// Moves that leave no trace outside the process are no moments of their own: to die after one of
    /// them is to die before it.
    ///
    /// # Errors
    /// The first run that did not end where the one without a crash does.
    pub fn prove_crashes(
        &self,
        seed: u64,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        self.crashes(seed, &shape, Rest::Needed)
    }

    /// Proves that bad objects harm nobody else: with them in the world, each seed ends for the others
    /// where the run without them does, and in the end each is held for the right reason.
    ///
    /// The name of a bad object says what is wrong with it. Where it begins with [`REFUSED`], every
    /// write to it and to whatever is made under its name is refused as invalid; with [`CONFLICTED`]
    /// every such write comes too late; and what begins with [`UNREADABLE`] fits no view, which is the
    /// caller's business. `shape` must leave the bad objects out.
    ///
    /// # Errors
    /// The first run that did not.
    pub fn prove_apart(
        &self,
        bad: &[(Resource, Value)],
        seeds: Range<u64>,
        shape: impl Fn(&Server) -> Value,
    ) -> Result<(), Box<Failure>> {
        let calm = self.conditions(seeds.start, Faults::none());
        let expected = self.calm(calm, &shape, Rest::Unneeded)?.1;
        for seed in seeds {
            for faults in [Faults::none(), Faults::some()] {
                let conditions = Conditions { seed, faults, bad, ..calm };
                let run = trial::run(self, conditions)?;
                same(conditions, &run, &shape, &expected)?;
                for (_, object) in bad {
                    said(conditions, object, &run.ending)?;
                }
            }
        }
        Ok(())
    }

    fn faults(
        &self,
        seeds: Range<u64>,
        shape: &dyn Fn(&Server) -> Value,
        rest: Rest,
    ) -> Result<(), Box<Failure>> {
        let calm = self.conditions(seeds.start, Faults::none());
        let expected = self.calm(calm, shape, rest)?.1;
        for seed in seeds {
            let alone = self.conditions(seed, Faults::some());
            let two = Conditions { replicas: alone.replicas + 1, ..alone };
            self.check(alone, shape, &expected, rest)?;
            self.check(two, shape, &expected, rest)?;
        }
        Ok(())
    }

    fn crashes(
        &self,
        seed: u64,
        shape: &dyn Fn(&Server) -> Value,
        rest: Rest,
    ) -> Result<(), Box<Failure>> {
        let calm = self.conditions(seed, Faults::none());
        let (run, expected) = self.calm(calm, shape, rest)?;
        for death in run.deaths {
            let late = death.sent.then_some(Sent::Late);
            for sent in [Sent::Lost].into_iter().chain(late) {
                let crash = Some(Crash { after: death.after, sent });
                let faults = Faults { crash, ..Faults::none() };
                self.check(Conditions { faults, ..calm }, shape, &expected, rest)?;
            }
        }
        Ok(())
    }

    fn conditions(&self, seed: u64, faults: Faults) -> Conditions<'static> {
        Conditions { seed, faults, replicas: self.replicas, bad: &[] }
    }

    /// The run in which nothing goes wrong, and where it ends.
    fn calm(
        &self,
        conditions: Conditions<'_>,
        shape: &dyn Fn(&Server) -> Value,
        rest: Rest,
    ) -> Result<(Run, Value), Box<Failure>> {
        let run = trial::run(self, conditions)?;
        at_rest(conditions, &run.ending, rest)?;
        let expected = shape(&run.ending.server);
        Ok((run, expected))
    }

    fn check(
        &self,
        conditions: Conditions<'_>,
        shape: &dyn Fn(&Server) -> Value,
        expected: &Value,
        rest: Rest,
    ) -> Result<(), Box<Failure>> {
        let run = trial::run(self, conditions)?;
        same(conditions, &run, shape, expected)?;
        at_rest(conditions, &run.ending, rest)
    }
}

/// Proves for worlds made by chance that each ends in one place, whatever goes wrong: each is run
/// without faults, with all kinds of them, with a process more that believes to lead, and with a crash
/// after one move of all.
///
/// # Errors
/// The first run that did not.
pub fn prove_worlds<'a>(
    seeds: Range<u64>,
    world: impl Fn(u64) -> Scenario<'a>,
    shape: impl Fn(&Server) -> Value,
) -> Result<(), Box<Failure>> {
    for seed in seeds {
        let scenario = world(seed);
        let calm = scenario.conditions(seed, Faults::none());
        let (run, expected) = scenario.calm(calm, &shape, Rest::Needed)?;
        let check = |conditions| scenario.check(conditions, &shape, &expected, Rest::Needed);
        let faults = Faults::some();
        check(Conditions { faults, ..calm })?;
        check(Conditions { faults, replicas: calm.replicas + 1, ..calm })?;
        let nth = usize::try_from(seed.wrapping_mul(31)).unwrap_or_default();
        if let Some(death) = run.deaths.get(nth % run.deaths.len().max(1)) {
            let crash = Some(Crash { after: death.after, sent: Sent::Late });
            let faults = Faults { crash, ..Faults::none() };
            check(Conditions { faults, ..calm })?;
        }
    }
    Ok(())
}

/// Whether a fresh start must find nothing to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Needed,
    Unneeded,
}

fn same(
    conditions: Conditions<'_>,
    run: &Run,
    shape: &dyn Fn(&Server) -> Value,
    expected: &Value,
) -> Result<(), Box<Failure>> {
    let Conditions { seed, faults, .. } = conditions;
    let witness = Witness(conditions, &run.trace);
    let found = shape(&run.ending.server);
    drop(witness);
    if found == *expected {
        return Ok(());
    }
    let (expected, trace) = (expected.clone(), run.trace.clone());
    Err(Box::new(Failure::Elsewhere { seed, faults, expected, found, trace }))
}

/// Tells what happened if what must hold at every moment did not: then a shape panics.
struct Witness<'a>(Conditions<'a>, &'a str);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(Conditions { seed, faults, replicas, .. }, trace) = self;
            eprintln!("seed {seed}, {replicas} processes, {faults:?}:\n{trace}");
        }
    }
}

fn at_rest(conditions: Conditions<'_>, ending: &Ending, rest: Rest) -> Result<(), Box<Failure>> {
    let Conditions { seed, faults, .. } = conditions;
    let is_quiet = ending.restless.is_empty() && ending.restless_calls.is_empty();
    if is_quiet || rest == Rest::Unneeded {
        return Ok(());
    }
    let (writes, calls) = (ending.restless.clone(), ending.restless_calls.clone());
    Err(Box::new(Failure::Restless { seed, faults, writes, calls }))
}

/// Whether a bad object is held for what is wrong with it.
fn said(conditions: Conditions<'_>, object: &Value, ending: &Ending) -> Result<(), Box<Failure>> {
    let Conditions { seed, faults, .. } = conditions;
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let reasons = [(REFUSED, "Invalid"), (CONFLICTED, "Conflict"), (UNREADABLE, "Unreadable")];
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
        false => Err(Box::new(Failure::Unsaid { seed, faults, name, reason, held })),
    }
}
