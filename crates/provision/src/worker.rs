//! The far end: carries out requests on a machine, and keeps its journal.
//!
//! The order of what is written is decided here, for real machines and simulated ones: what a file
//! contained is saved, then the intent is on disk, then the action begins, then its end is on disk.

use crate::action::Action;
use crate::content::Salt;
use crate::frame::{Reply, Request};
use crate::journal::{Intent, Journal, Outcome, Record};
use crate::lock::{self, Lock, LockDecision};
use crate::state::{Observed, State, Want};

/// What a machine could not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Failure {
    /// Why.
    pub error: String,
    /// Whether it may work when it is tried again.
    pub is_transient: bool,
}

impl Failure {
    /// A failure that will be the same again.
    #[must_use]
    pub fn lasting(error: impl Into<String>) -> Self {
        Self { error: error.into(), is_transient: false }
    }
}

/// A machine that is acted on.
pub trait Machine {
    /// The state of a resource.
    ///
    /// # Errors
    /// It cannot be found out.
    fn observe(&mut self, want: &Want) -> Result<State, Failure>;

    /// Resources that an action changes besides its targets: folders above a file that are missing,
    /// packages that another needs.
    ///
    /// # Errors
    /// They cannot be found out.
    fn besides(&mut self, action: &Action) -> Result<Vec<Want>, Failure>;

    /// Performs an action. Returns what was left as it is, and why.
    ///
    /// # Errors
    /// It failed; parts of it may have happened.
    fn perform(
        &mut self,
        cluster: &str,
        action: &Action,
        body: &[u8],
    ) -> Result<Vec<String>, Failure>;

    /// Saves the content of a file under a name, so that it survives the machine's death.
    ///
    /// # Errors
    /// It is not saved.
    fn save(&mut self, cluster: &str, path: &str, name: &str) -> Result<(), Failure>;

    /// The text of a cluster's journal; empty without one.
    ///
    /// # Errors
    /// It cannot be read.
    fn journal(&mut self, cluster: &str) -> Result<String, Failure>;

    /// Cuts a journal to a length, and writes a line after it, so that it survives the machine's
    /// death.
    ///
    /// # Errors
    /// It is not written.
    fn append(&mut self, cluster: &str, length: usize, line: &str) -> Result<(), Failure>;

    /// Removes a journal and what was saved for it.
    ///
    /// # Errors
    /// It is not removed.
    fn forget(&mut self, cluster: &str) -> Result<(), Failure>;

    /// The lock of a cluster.
    ///
    /// # Errors
    /// It cannot be read.
    fn read_lock(&mut self, cluster: &str) -> Result<Option<Lock>, Failure>;

    /// Replaces the lock of a cluster, if it is still the one that was read.
    ///
    /// # Errors
    /// It was changed meanwhile, or cannot be written.
    fn write_lock(
        &mut self,
        cluster: &str,
        read: Option<&Lock>,
        with: Option<&Lock>,
    ) -> Result<(), Failure>;

    /// The clock, in seconds since 1970.
    fn now(&mut self) -> u64;

    /// Random bytes.
    ///
    /// # Errors
    /// There are none.
    fn random(&mut self) -> Result<[u8; 32], Failure>;
}

/// Carries out a request.
pub fn serve(machine: &mut impl Machine, request: Request, body: &[u8]) -> Reply {
    let reply = match request {
        Request::Observe { wants } => observe(machine, wants),
        Request::Act { cluster, run, step, action } => {
            act(machine, &cluster, run, step, &action, body)
        }
        Request::Journal { cluster } => {
            machine.journal(&cluster).map(|text| Reply::Journal { text })
        }
        Request::Undo { cluster, sequence, actions, ends } => {
            undo(machine, &cluster, sequence, &actions, ends)
        }
        Request::Forget { cluster } => forget(machine, &cluster),
        Request::Lock { cluster, lock } => take_lock(machine, &cluster, &lock),
        Request::Unlock { cluster, run } => release_lock(machine, &cluster, &run),
    };
    reply.unwrap_or_else(|failure| Reply::Failed {
        error: failure.error,
        transient: failure.is_transient,
    })
}

fn done() -> Reply {
    Reply::Done { notes: Vec::new() }
}

fn observe(machine: &mut impl Machine, wants: Vec<Want>) -> Result<Reply, Failure> {
    let mut observed = Observed::default();
    for want in wants {
        let state = machine.observe(&want)?;
        observed.set(want, state);
    }
    Ok(Reply::Observed { observed })
}

/// A journal that is written.
struct OpenJournal {
    journal: Journal,
    length: usize,
}

impl OpenJournal {
    /// Opens the journal of a cluster, or begins it.
    fn open(machine: &mut impl Machine, cluster: &str) -> Result<Self, Failure> {
        let text = machine.journal(cluster)?;
        let length = Journal::whole_bytes(&text);
        let read = Journal::parse(&text).map_err(|error| Failure::lasting(error.to_string()))?;
        if let Some(journal) = read {
            return Ok(Self { journal, length });
        }
        let salt = Salt::of(&machine.random()?);
        let journal = Journal::new(cluster, salt);
        let line = journal.begin().line();
        machine.append(cluster, 0, &line)?;
        Ok(Self { journal, length: line.len() })
    }

    fn append(&mut self, machine: &mut impl Machine, record: Record) -> Result<(), Failure> {
        let line = record.line();
        machine.append(&self.journal.cluster, self.length, &line)?;
        self.length += line.len();
        self.journal.apply(record).map_err(Failure::lasting)
    }
}

fn act(
    machine: &mut impl Machine,
    cluster: &str,
    run: String,
    step: String,
    action: &Action,
    body: &[u8],
) -> Result<Reply, Failure> {
    if let Some(digest) = action.body()
        && crate::content::Digest::of(body) != *digest
    {
        let error = "the bytes that came are not those of the action";
        return Err(Failure { error: error.to_owned(), is_transient: true });
    }
    let mut before = Observed::default();
    let mut is_reached = true;
    for want in action.targets() {
        let state = machine.observe(&want)?;
        is_reached &= action.is_reached(&want, &state);
        before.set(want, state);
    }
    // A request that came twice, or after another controller's.
    if is_reached {
        return Ok(done());
    }
    for want in machine.besides(action)? {
        let state = machine.observe(&want)?;
        before.set(want, state);
    }
    let mut open = OpenJournal::open(machine, cluster)?;
    let saved = save(machine, cluster, action, &before)?;
    let salt = open.journal.salt.clone();
    let sequence = open.journal.next_sequence();
    let intent = Intent {
        sequence,
        run,
        step,
        action: action.clone().salted(&salt),
        before: before.salted(&salt),
        saved,
    };
    open.append(machine, Record::Intent(intent))?;
    match machine.perform(cluster, action, body) {
        Ok(notes) => {
            open.append(machine, Record::Done { sequence })?;
            Ok(Reply::Done { notes })
        }
        Err(failure) => {
            let error = failure.error.clone();
            open.append(machine, Record::Failed { sequence, error })?;
            Err(failure)
        }
    }
}

/// Saves what a file contains that an action overwrites or removes.
fn save(
    machine: &mut impl Machine,
    cluster: &str,
    action: &Action,
    before: &Observed,
) -> Result<Option<String>, Failure> {
    let Some(Want::Path(path)) = action.targets().into_iter().next() else { return Ok(None) };
    let is_file = matches!(before.get(&Want::Path(path.clone())), State::File { .. });
    if !is_file || matches!(action, Action::Run { .. } | Action::RunUndo { .. }) {
        return Ok(None);
    }
    let random = machine.random()?;
    let name = Salt::of(&random).into_name();
    machine.save(cluster, &path, &name)?;
    Ok(Some(name))
}

fn undo(
    machine: &mut impl Machine,
    cluster: &str,
    sequence: u64,
    actions: &[Action],
    ends: bool,
) -> Result<Reply, Failure> {
    let mut open = OpenJournal::open(machine, cluster)?;
    if open.journal.entries().all(|(intent, _)| intent.sequence != sequence) {
        let error = format!("the journal of {cluster} has no entry {sequence}");
        return Err(Failure::lasting(error));
    }
    let mut notes = Vec::new();
    for action in actions {
        // A unit that went with its package is neither stopped nor started.
        if let Action::Unit { name, .. } = action
            && machine.observe(&Want::Unit(name.clone()))? == State::Absent
        {
            notes.push(format!("there is no {name} any more"));
            continue;
        }
        notes.extend(machine.perform(cluster, action, &[])?);
    }
    if ends {
        open.append(machine, Record::Undone { sequence })?;
    }
    Ok(Reply::Done { notes })
}

fn forget(machine: &mut impl Machine, cluster: &str) -> Result<Reply, Failure> {
    let text = machine.journal(cluster)?;
    let journal = Journal::parse(&text).map_err(|error| Failure::lasting(error.to_string()))?;
    let open = journal.iter().flat_map(Journal::entries);
    let open = open.filter(|(_, outcome)| **outcome != Outcome::Undone).count();
    if open > 0 {
        let error = format!("{open} entries of the journal of {cluster} are not undone");
        return Err(Failure::lasting(error));
    }
    machine.forget(cluster)?;
    Ok(done())
}

fn take_lock(machine: &mut impl Machine, cluster: &str, own: &Lock) -> Result<Reply, Failure> {
    let existing = machine.read_lock(cluster)?;
    let now = machine.now();
    let with = match lock::decide(existing.as_ref(), own, now) {
        LockDecision::Acquire(with)
        | LockDecision::Renew(with)
        | LockDecision::TakeOver { stale: _, with } => with,
        LockDecision::Held { holder, age } => return Ok(Reply::Held { holder, age }),
    };
    machine.write_lock(cluster, existing.as_ref(), Some(&with))?;
    Ok(done())
}

fn release_lock(machine: &mut impl Machine, cluster: &str, run: &str) -> Result<Reply, Failure> {
    let existing = machine.read_lock(cluster)?;
    if let Some(lock) = existing.filter(|lock| lock.run == run) {
        machine.write_lock(cluster, Some(&lock), None)?;
    }
    Ok(done())
}
