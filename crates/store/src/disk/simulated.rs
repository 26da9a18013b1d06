//! A disk in memory that fails in every way a real one can.
//!
//! It keeps apart what was written and what was made durable. After [`SimulatedDisk::crash`] it
//! holds what was durable and, sector by sector, any later state; names and files alike.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::disk::{Disk, File};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Default)]
pub(crate) struct SimulatedDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    files: Vec<SimulatedFile>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// The names after every change that was not made durable.
    pending_names: Vec<BTreeMap<String, usize>>,
    operations: usize,
    faults: BTreeMap<usize, Fault>,
    /// What goes wrong next with a file, whatever else the disk is busy with.
    file_faults: BTreeMap<usize, Fault>,
    powered_off: bool,
    capacity: Option<usize>,
}

#[derive(Default, Clone)]
struct SimulatedFile {
    current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing works from here on.
    PowerLoss,
    /// A write gets half of its bytes to the disk.
    ShortWrite,
    /// A synchronisation fails; what it should have saved is readable until the power goes.
    SyncError,
}

impl SimulatedDisk {
    /// Lets something go wrong at an operation, counted from now; the first one that can go wrong
    /// in this way at or after it does.
    pub(crate) fn inject_fault(&self, after: usize, fault: Fault) {
        let mut inner = self.inner.lock().unwrap();
        let at = inner.operations + after;
        inner.faults.insert(at, fault);
    }

    /// Lets something go wrong with a file, at the first operation on it that can.
    pub(crate) fn inject_file_fault(&self, name: &str, fault: Fault) {
        let mut inner = self.inner.lock().unwrap();
        match fault {
            // It is the disk that has no power, not the file.
            Fault::PowerLoss => inner.powered_off = true,
            Fault::ShortWrite | Fault::SyncError => {
                let file = inner.names[name];
                inner.file_faults.insert(file, fault);
            }
        }
    }

    /// Bytes all files together may have.
    pub(crate) fn set_capacity(&self, bytes: Option<usize>) {
        self.inner.lock().unwrap().capacity = bytes;
    }

    pub(crate) fn used(&self) -> usize {
        self.inner.lock().unwrap().used()
    }

    /// The disk as it may be found after the power went at this moment.
    pub(crate) fn crash(&self, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let inner = self.inner.lock().unwrap();
        let kept = rng.usize(..=inner.pending_names.len());
        let names = match kept {
            0 => &inner.durable_names,
            _ => &inner.pending_names[kept - 1],
        };
        let files = inner.files.iter().map(|content| content.crash(&mut rng)).collect();
        Self::of(files, names.clone())
    }

    /// Changes one bit of a file, as if the disk had done it.
    pub(crate) fn flip_bit(&self, name: &str, bit: usize) {
        let mut inner = self.inner.lock().unwrap();
        let file = inner.names[name];
        let content = &mut inner.files[file];
        content.current[bit / 8] ^= 1 << (bit % 8);
        content.durable = content.current.clone();
    }

    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        let inner = self.inner.lock().unwrap();
        inner.files[inner.names[name]].current.clone()
    }

    pub(crate) fn overwrite(&self, name: &str, offset: usize, bytes: &[u8]) {
        let mut inner = self.inner.lock().unwrap();
        let file = inner.names[name];
        inner.files[file].current[offset..offset + bytes.len()].copy_from_slice(bytes);
        inner.files[file].durable = inner.files[file].current.clone();
    }

    /// A copy on which things can be tried.
    pub(crate) fn copy(&self) -> Self {
        let inner = self.inner.lock().unwrap();
        let files = inner.files.iter().map(|content| SimulatedFile::of(content.current.clone()));
        Self::of(files.collect(), inner.names.clone())
    }

    fn of(files: Vec<SimulatedFile>, names: BTreeMap<String, usize>) -> Self {
        let durable_names = names.clone();
        let inner = Inner { files, names, durable_names, ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    fn step<T>(
        &self,
        can: &[Fault],
        work: impl FnOnce(&mut Inner, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut inner = self.inner.lock().unwrap();
        let now = inner.operations;
        inner.operations += 1;
        let due = inner.faults.range(..=now).find(|(_, fault)| can.contains(fault));
        let fault = due.map(|(at, fault)| (*at, *fault));
        if let Some((at, _)) = fault {
            inner.faults.remove(&at);
        }
        if inner.faults.range(..=now).any(|(_, fault)| *fault == Fault::PowerLoss) {
            inner.powered_off = true;
        }
        if inner.powered_off {
            return Err(io::Error::other("the power is off"));
        }
        work(&mut inner, fault.map(|(_, fault)| fault))
    }

    fn rename_names(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.step(&[], |inner, _| {
            change(&mut inner.names)?;
            let names = inner.names.clone();
            inner.pending_names.push(names);
            Ok(())
        })
    }
}

impl Inner {
    /// Whether an operation on a file is to go wrong in a way.
    fn take_fault(&mut self, file: usize, fault: Fault) -> bool {
        let due = self.file_faults.get(&file) == Some(&fault);
        if due {
            self.file_faults.remove(&file);
        }
        due
    }

    fn used(&self) -> usize {
        let files: BTreeSet<_> = self.names.values().collect();
        files.into_iter().map(|file| self.files[*file].current.len()).sum()
    }
}

impl SimulatedFile {
    fn of(bytes: Vec<u8>) -> Self {
        Self { durable: bytes.clone(), current: bytes, pending: Vec::new() }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.current.len() < end {
            self.current.resize(end, 0);
        }
        self.current[offset..end].copy_from_slice(bytes);
        self.pending.push((offset, bytes.to_vec()));
    }

    fn crash(&self, rng: &mut fastrand::Rng) -> Self {
        let len = if rng.bool() { self.durable.len() } else { self.current.len() };
        // Sometimes nothing of it got there, sometimes nearly everything did.
        let share = rng.usize(..=4);
        let mut versions = vec![0; self.current.len().div_ceil(SECTOR_BYTES)];
        for version in &mut versions {
            if rng.usize(..4) < share {
                *version = rng.usize(..=self.pending.len());
            }
        }
        let mut bytes = self.durable.clone();
        bytes.resize(self.current.len(), 0);
        for (at, (offset, written)) in self.pending.iter().enumerate() {
            for (index, byte) in written.iter().enumerate() {
                if versions[(offset + index) / SECTOR_BYTES] > at {
                    bytes[offset + index] = *byte;
                }
            }
        }
        bytes.truncate(len);
        Self::of(bytes)
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.step(&[], |inner, _| Ok(inner.names.keys().cloned().collect()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        let file = self.step(&[], |inner, _| {
            if inner.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            inner.files.push(SimulatedFile::default());
            Ok(inner.files.len() - 1)
        })?;
        self.rename_names(|names| {
            names.insert(name.to_owned(), file);
            Ok(())
        })?;
        Ok(Box::new(SimulatedHandle { disk: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let file =
            self.step(&[], |inner, _| inner.names.get(name).copied().ok_or_else(not_found))?;
        Ok(Box::new(SimulatedHandle { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.rename_names(|names| {
            let file = names.remove(from).ok_or_else(not_found)?;
            names.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.rename_names(|names| names.remove(name).map(drop).ok_or_else(not_found))
    }

    fn sync(&self) -> io::Result<()> {
        self.step(&[], |inner, _| {
            inner.durable_names = inner.names.clone();
            inner.pending_names.clear();
            Ok(())
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/simulated").join(name)
    }

    fn track(&self, _: &str) {}

    fn is_in_place(&self) -> bool {
        true
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let inner = self.inner.lock().unwrap();
        let free = inner.capacity.map_or(usize::MAX, |it| it.saturating_sub(inner.used()));
        Ok(free as u64)
    }

    fn record_address(&self, _address: &str) -> io::Result<()> {
        Ok(())
    }
}

struct SimulatedHandle {
    disk: SimulatedDisk,
    file: usize,
}

impl SimulatedHandle {
    fn grow(inner: &Inner, file: usize, end: usize) -> io::Result<()> {
        let more = end.saturating_sub(inner.files[file].current.len());
        if inner.capacity.is_some_and(|capacity| inner.used() + more > capacity) && more > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl File for SimulatedHandle {
    fn len(&self) -> io::Result<u64> {
        self.disk.step(&[], |inner, _| Ok(inner.files[self.file].current.len() as u64))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        self.disk.step(&[], |inner, _| {
            let content = &inner.files[self.file].current;
            let part = content.get(offset..offset + buffer.len());
            buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        self.disk.step(&[Fault::ShortWrite], |inner, fault| {
            Self::grow(inner, self.file, offset + buffer.len())?;
            if fault.is_some() || inner.take_fault(self.file, Fault::ShortWrite) {
                inner.files[self.file].write(offset, &buffer[..buffer.len() / 2]);
                return Err(io::ErrorKind::WriteZero.into());
            }
            inner.files[self.file].write(offset, buffer);
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap();
        self.disk.step(&[], |inner, _| Self::grow(inner, self.file, len))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.step(&[Fault::SyncError], |inner, fault| {
            let broken = fault.is_some() || inner.take_fault(self.file, Fault::SyncError);
            let content = &mut inner.files[self.file];
            if broken {
                // The system takes the pages for clean; only writing them again saves them.
                content.pending.clear();
                return Err(io::Error::other("the disk is broken"));
            }
            for (offset, bytes) in std::mem::take(&mut content.pending) {
                let end = offset + bytes.len();
                if content.durable.len() < end {
                    content.durable.resize(end, 0);
                }
                content.durable[offset..end].copy_from_slice(&bytes);
            }
            Ok(())
        })
    }
}
