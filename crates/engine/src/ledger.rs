//! Ledgers: which process holds how much memory of an accelerator, in the order it happened.
//!
//! Each accelerator of a node has one file that all processes of the node share. Its first line
//! describes the accelerator; each further line is one change, numbered in order. A change is
//! written while the file is locked, so what is read is never between two changes. A holder has a
//! file of its own that is locked for as long as its process lives, wherever that process runs. So
//! a killed process leaves its entry behind until somebody reaps it, as the memory of a real
//! accelerator is freed by its driver and not by the process.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The capacity of an accelerator that is used before anybody described it: 1 GiB.
pub const DEFAULT_CAPACITY: u64 = 1 << 30;
/// The size at which a ledger is rewritten with what is held; the changes before go to the file
/// `….ledger.old`.
const MAX_LEDGER_BYTES: u64 = 16 << 20;
/// The most accelerators of a node.
const MAX_ACCELERATORS: usize = 1024;
/// The longest name of an accelerator.
const MAX_NAME_BYTES: usize = 128;

/// An accelerator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// Its UUID.
    pub uuid: String,
    /// Its place on the node.
    pub index: u32,
    /// Its memory, in bytes.
    pub capacity: u64,
}

/// What a change was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Memory was taken to load a model.
    Load,
    /// Memory was given back to sleep.
    Sleep,
    /// Memory was taken to wake.
    Wake,
    /// All was given back by its process.
    Release,
    /// All was given back after its process had ended.
    Reap,
}

/// One line of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from one, without gaps.
    pub number: u64,
    /// The holder.
    pub holder: String,
    /// The instance the holder belongs to, for people.
    pub instance: String,
    /// The model.
    pub model: String,
    /// What happened.
    pub change: Change,
    /// What the holder has after that, in bytes.
    pub bytes: u64,
    /// Whether it is awake after that.
    pub awake: bool,
    /// When.
    pub at: String,
}

/// What a ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerState {
    /// The accelerator.
    pub accelerator: Accelerator,
    /// All changes of the file.
    pub entries: Vec<Entry>,
}

impl LedgerState {
    /// Returns the last change of each holder that still has something.
    #[must_use]
    pub fn held(&self) -> BTreeMap<&str, &Entry> {
        let mut held = BTreeMap::new();
        for entry in &self.entries {
            match entry.change {
                Change::Load | Change::Sleep | Change::Wake => {
                    held.insert(entry.holder.as_str(), entry);
                }
                Change::Release | Change::Reap => {
                    held.remove(entry.holder.as_str());
                }
            }
        }
        held
    }

    /// Returns how much is used, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.held().values().fold(0, |sum, it| sum.saturating_add(it.bytes))
    }
}

/// Why a ledger was not changed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The accelerator has not enough memory.
    #[error(
        "CUDA out of memory: tried to allocate {wanted} bytes on {uuid}, which has a total \
         capacity of {capacity} bytes of which {free} bytes are free"
    )]
    OutOfMemory {
        /// The accelerator.
        uuid: String,
        /// What the holder wants to have in total.
        wanted: u64,
        /// The memory of the accelerator.
        capacity: u64,
        /// What others have left of it.
        free: u64,
    },
    /// A name cannot be that of an accelerator.
    #[error(
        "{0:?} cannot be the UUID of an accelerator: use 1 to 128 letters, digits, `-`, `_`, `.` \
         and `/`"
    )]
    InvalidUuid(String),
    /// The file cannot be read or written.
    #[error("could not use the ledger {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The ledger of one accelerator. It opens its file for each use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    directory: PathBuf,
    uuid: String,
}

impl Ledger {
    /// Returns the ledger of an accelerator in a directory.
    ///
    /// # Errors
    /// The UUID cannot be one.
    pub fn of(directory: &Path, uuid: &str) -> Result<Self, LedgerError> {
        let good = |it: u8| it.is_ascii_alphanumeric() || b"-_./".contains(&it);
        if uuid.is_empty() || uuid.len() > MAX_NAME_BYTES || !uuid.bytes().all(good) {
            return Err(LedgerError::InvalidUuid(uuid.to_owned()));
        }
        Ok(Self { directory: directory.to_owned(), uuid: uuid.to_owned() })
    }

    /// Returns the ledger of an accelerator that somebody described.
    #[must_use]
    pub fn find(directory: &Path, uuid: &str) -> Option<Self> {
        Self::of(directory, uuid).ok().filter(|it| it.path().is_file())
    }

    /// Returns the ledgers of a directory, in the order of their accelerators' places.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn all(directory: &Path) -> Result<Vec<Self>, LedgerError> {
        let failed = |source| LedgerError::File { path: directory.to_owned(), source };
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut all = Vec::new();
        for entry in entries.take(8 * MAX_ACCELERATORS) {
            let name = entry.map_err(failed)?.file_name();
            let uuid = name.to_str().and_then(|it| it.strip_suffix(".ledger"));
            let Some(uuid) = uuid else { continue };
            let ledger = Self::of(directory, &uuid.replace('+', "/"))?;
            all.push((ledger.read()?.accelerator.index, ledger));
        }
        all.sort_by(|one, two| (one.0, &one.1.uuid).cmp(&(two.0, &two.1.uuid)));
        Ok(all.into_iter().map(|(_, it)| it).take(MAX_ACCELERATORS).collect())
    }

    /// The accelerator.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    fn path(&self) -> PathBuf {
        self.directory.join(format!("{}.ledger", self.uuid.replace('/', "+")))
    }

    fn failed(&self, source: io::Error) -> LedgerError {
        LedgerError::File { path: self.path(), source }
    }

    /// Describes the accelerator, unless it is described.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn describe(&self, index: u32, capacity: u64) -> Result<(), LedgerError> {
        let locked = self.lock(Some((index, capacity)))?;
        drop(locked);
        Ok(())
    }

    /// Reads the ledger.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> Result<LedgerState, LedgerError> {
        Ok(self.lock(None)?.state)
    }

    /// Records that a holder has so much from now on.
    ///
    /// # Errors
    /// There is not so much free, and nothing was changed.
    pub fn set(
        &self,
        holder: &Holder,
        change: Change,
        bytes: u64,
        awake: bool,
        now: jiff::Timestamp,
    ) -> Result<(), LedgerError> {
        let mut locked = self.lock(None)?;
        let LedgerState { accelerator, .. } = &locked.state;
        let held = locked.state.held();
        let others = held.iter().filter(|(name, _)| **name != holder.name);
        let others = others.fold(0_u64, |sum, (_, it)| sum.saturating_add(it.bytes));
        let free = accelerator.capacity.saturating_sub(others);
        if bytes > free {
            let (uuid, capacity) = (self.uuid.clone(), accelerator.capacity);
            return Err(LedgerError::OutOfMemory { uuid, wanted: bytes, capacity, free });
        }
        let entry = Entry {
            number: locked.next_number(),
            holder: holder.name.clone(),
            instance: holder.instance.clone(),
            model: holder.model.clone(),
            change,
            bytes,
            awake,
            at: now.to_string(),
        };
        locked.append(entry).map_err(|error| self.failed(error))
    }

    /// Gives back what ended processes hold, and returns how many there were.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn reap(&self, now: jiff::Timestamp) -> Result<usize, LedgerError> {
        let mut locked = self.lock(None)?;
        let held = locked.state.held();
        let ended = held.into_iter().filter(|(name, _)| !is_alive(&self.directory, name));
        let ended: Vec<Entry> = ended.map(|(_, it)| it.clone()).collect();
        let count = ended.len();
        for entry in ended {
            let number = locked.next_number();
            let at = now.to_string();
            let entry = Entry { number, change: Change::Reap, bytes: 0, awake: false, at, ..entry };
            let _ = std::fs::remove_file(holder_path(&self.directory, &entry.holder));
            locked.append(entry).map_err(|error| self.failed(error))?;
        }
        Ok(count)
    }

    /// Locks the file, reads it, and repairs what a writer left that was killed.
    fn lock(&self, described: Option<(u32, u64)>) -> Result<LockedLedger, LedgerError> {
        self.try_lock(described).map_err(|error| self.failed(error))
    }

    fn try_lock(&self, described: Option<(u32, u64)>) -> io::Result<LockedLedger> {
        std::fs::create_dir_all(&self.directory)?;
        let path = self.path();
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // A line without its end was being written when its writer was killed.
        let whole = text.rfind('\n').map_or(0, |it| it + 1);
        if whole < text.len() {
            file.set_len(u64::try_from(whole).map_err(io::Error::other)?)?;
            text.truncate(whole);
        }
        let mut lines = text.lines();
        let accelerator = match lines.next() {
            Some(first) => serde_json::from_str(first)?,
            None => {
                let (index, capacity) = described.unwrap_or((0, DEFAULT_CAPACITY));
                let accelerator = Accelerator { uuid: self.uuid.clone(), index, capacity };
                file.write_all(line(&accelerator)?.as_bytes())?;
                accelerator
            }
        };
        let entries: Result<Vec<Entry>, _> = lines.map(serde_json::from_str).collect();
        let state = LedgerState { accelerator, entries: entries? };
        Ok(LockedLedger { file, path, state })
    }
}

fn line(value: &impl Serialize) -> io::Result<String> {
    Ok(format!("{}\n", serde_json::to_string(value)?))
}

/// A ledger that nobody else reads or writes; unlocked when it is dropped.
struct LockedLedger {
    file: File,
    path: PathBuf,
    state: LedgerState,
}

impl LockedLedger {
    fn next_number(&self) -> u64 {
        self.state.entries.last().map_or(1, |it| it.number + 1)
    }

    fn append(&mut self, entry: Entry) -> io::Result<()> {
        let end = self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(line(&entry)?.as_bytes())?;
        self.state.entries.push(entry);
        if end > MAX_LEDGER_BYTES {
            self.compact()?;
        }
        Ok(())
    }

    /// Moves what is past to another file. It is the same file that is rewritten: it has the lock.
    fn compact(&mut self) -> io::Result<()> {
        std::fs::copy(&self.path, self.path.with_extension("ledger.old"))?;
        let mut held: Vec<Entry> = self.state.held().into_values().cloned().collect();
        held.sort_by_key(|it| it.number);
        let mut text = line(&self.state.accelerator)?;
        for entry in &held {
            text.push_str(&line(entry)?);
        }
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(u64::try_from(text.len()).map_err(io::Error::other)?)?;
        self.state.entries = held;
        Ok(())
    }
}

/// A process that holds memory. It counts as alive until this is dropped or the process ends.
#[derive(Debug)]
pub struct Holder {
    name: String,
    instance: String,
    model: String,
    directory: PathBuf,
    _lock: File,
}

impl Holder {
    /// Makes a holder with a name that no other has.
    ///
    /// # Errors
    /// Its file cannot be created.
    pub fn new(directory: &Path, instance: &str, model: &str) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        loop {
            let name = format!("{:016x}", fastrand::u64(..));
            let path = holder_path(directory, &name);
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            return Ok(Self {
                name,
                instance: instance.to_owned(),
                model: model.to_owned(),
                directory: directory.to_owned(),
                _lock: file,
            });
        }
    }

    /// Removes its file, after it has given back what it held.
    pub fn retire(self) {
        let _ = std::fs::remove_file(holder_path(&self.directory, &self.name));
    }
}

fn holder_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.holder"))
}

fn is_alive(directory: &Path, name: &str) -> bool {
    let Ok(file) = File::open(holder_path(directory, name)) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// Reaps the ledgers of a directory.
///
/// # Errors
/// One cannot be read or written.
pub fn reap_all(directory: &Path, now: jiff::Timestamp) -> Result<usize, LedgerError> {
    let mut count = 0;
    for ledger in Ledger::all(directory)? {
        count += ledger.reap(now)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn memory_is_taken_and_given_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::of(folder.path(), "GPU-0").unwrap();
        ledger.describe(3, 100).unwrap();
        // A later description changes nothing.
        ledger.describe(0, 1).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let one = Holder::new(folder.path(), "i1", "m1").unwrap();
        let two = Holder::new(folder.path(), "i2", "m2").unwrap();
        ledger.set(&one, Change::Load, 60, true, now).unwrap();
        let error = ledger.set(&two, Change::Load, 41, true, now).unwrap_err();
        assert!(error.to_string().starts_with("CUDA out of memory"), "{error}");
        ledger.set(&one, Change::Sleep, 5, false, now).unwrap();
        ledger.set(&two, Change::Load, 95, true, now).unwrap();
        ledger.set(&one, Change::Wake, 60, true, now).unwrap_err();
        ledger.set(&two, Change::Release, 0, false, now).unwrap();
        ledger.set(&one, Change::Wake, 60, true, now).unwrap();
        let state = ledger.read().unwrap();
        assert_eq!(
            state.accelerator,
            Accelerator { uuid: "GPU-0".into(), index: 3, capacity: 100 }
        );
        let record: Vec<(u64, &str, Change, u64)> =
            state.entries.iter().map(|it| (it.number, &*it.model, it.change, it.bytes)).collect();
        let expected = [
            (1, "m1", Change::Load, 60),
            (2, "m1", Change::Sleep, 5),
            (3, "m2", Change::Load, 95),
            (4, "m2", Change::Release, 0),
            (5, "m1", Change::Wake, 60),
        ];
        assert_eq!(record, expected);
        assert_eq!(state.used(), 60);
    }

    #[test]
    fn only_ended_holders_are_reaped() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::of(folder.path(), "a/b").unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let alive = Holder::new(folder.path(), "", "").unwrap();
        let ended = Holder::new(folder.path(), "", "").unwrap();
        ledger.set(&alive, Change::Load, 1, true, now).unwrap();
        ledger.set(&ended, Change::Load, 2, true, now).unwrap();
        assert_eq!(ledger.reap(now).unwrap(), 0);
        drop(ended);
        assert_eq!(ledger.read().unwrap().used(), 3, "a dead process leaves its entry");
        assert_eq!(reap_all(folder.path(), now).unwrap(), 1);
        assert_eq!(ledger.read().unwrap().used(), 1);
        assert_eq!(Ledger::all(folder.path()).unwrap(), [ledger]);
        alive.retire();
    }

    #[test]
    fn a_torn_line_is_dropped_and_a_wrong_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::of(folder.path(), "g").unwrap();
        let holder = Holder::new(folder.path(), "", "").unwrap();
        let now = Timestamp::UNIX_EPOCH;
        ledger.set(&holder, Change::Load, 7, true, now).unwrap();
        let append = |text: &str| {
            let mut file = OpenOptions::new().append(true).open(ledger.path()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append("{\"number\":2,\"hol");
        ledger.set(&holder, Change::Sleep, 1, false, now).unwrap();
        assert_eq!(ledger.read().unwrap().entries.len(), 2);
        append("nonsense\n");
        ledger.read().unwrap_err();
        for bad in ["", "a b", "a\n", "ä"] {
            Ledger::of(folder.path(), bad).unwrap_err();
        }
    }
}
