//! A disk in memory that crashes at a chosen operation, loses what was not flushed, and fills up.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::disk::{Disk, DiskFile};

#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Directory,
}

type Tree = BTreeMap<String, BTreeMap<String, Node>>;

#[derive(Debug, Default)]
struct State {
    files: Vec<FileState>,
    /// What a running process sees.
    current: Tree,
    /// What survives a crash for certain.
    durable: Tree,
    /// Changes of names that are not flushed, in their order: directory, name, new value.
    pending: Vec<(String, String, Option<Node>)>,
    changes: u64,
    crash_at: Option<u64>,
    full_at: Option<u64>,
    crashed: bool,
}

#[derive(Clone, Debug, Default)]
struct FileState {
    bytes: Vec<u8>,
    synced: usize,
}

fn split(path: &str) -> (String, String) {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    (directory.to_owned(), name.to_owned())
}

impl SimulatedDisk {
    pub(super) fn new() -> Self {
        let disk = Self::default();
        for tree in [0, 1] {
            let mut state = disk.lock();
            let tree = if tree == 0 { &mut state.current } else { &mut state.durable };
            tree.insert(String::new(), BTreeMap::new());
        }
        disk
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The number of changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Fails this change and everything after it.
    pub(super) fn crash_at(&self, change: u64) {
        self.lock().crash_at = Some(change);
    }

    /// Refuses to store more from this change on, until it is called with `None`.
    pub(super) fn full_at(&self, change: Option<u64>) {
        self.lock().full_at = change;
    }

    /// The disk as the next process finds it: of what was not flushed, some is there.
    pub(super) fn after_crash(&self, random: &mut fastrand::Rng) -> Self {
        let state = self.lock();
        let mut tree = state.durable.clone();
        let directories: Vec<String> = state.current.keys().cloned().collect();
        for directory in directories {
            let changes: Vec<_> = state.pending.iter().filter(|it| it.0 == directory).collect();
            let kept = random.usize(..=changes.len());
            for (directory, name, node) in &changes[..kept] {
                let names = tree.entry(directory.clone()).or_default();
                match node {
                    None => drop(names.remove(name)),
                    Some(node) => drop(names.insert(name.clone(), *node)),
                }
            }
        }
        // A directory whose own name is lost is lost with all that is in it.
        let mut reachable: Tree = BTreeMap::new();
        let mut open = vec![String::new()];
        while let Some(directory) = open.pop() {
            let names = tree.get(&directory).cloned().unwrap_or_default();
            for (name, node) in &names {
                if *node == Node::Directory {
                    let path = [directory.as_str(), name].join("/");
                    open.push(path.trim_start_matches('/').to_owned());
                }
            }
            reachable.insert(directory, names);
        }
        let files = state.files.iter().map(|file| {
            let kept = random.usize(file.synced..=file.bytes.len());
            FileState { bytes: file.bytes[..kept].to_vec(), synced: kept }
        });
        let files = files.collect();
        Self(Arc::new(Mutex::new(State {
            files,
            current: reachable.clone(),
            durable: reachable,
            ..State::default()
        })))
    }

    /// All files and their contents.
    pub(super) fn all_files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let mut found = BTreeMap::new();
        for (directory, names) in &state.current {
            for (name, node) in names {
                if let Node::File(index) = node {
                    let path = [directory.as_str(), name].join("/");
                    found.insert(path, state.files[*index].bytes.clone());
                }
            }
        }
        found
    }
}

impl State {
    /// Counts a change; fails if the process is dead.
    fn change(&mut self) -> io::Result<()> {
        self.changes += 1;
        if self.crash_at.is_some_and(|at| self.changes >= at) {
            self.crashed = true;
        }
        self.alive()
    }

    fn alive(&self) -> io::Result<()> {
        if self.crashed { Err(io::Error::other("the process is dead")) } else { Ok(()) }
    }

    fn space(&self) -> io::Result<()> {
        match self.full_at.is_some_and(|at| self.changes >= at) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn set(&mut self, path: &str, node: Option<Node>) -> io::Result<Option<Node>> {
        let (directory, name) = split(path);
        let names = self.current.get_mut(&directory).ok_or(io::ErrorKind::NotFound)?;
        let before = match node {
            None => names.remove(&name),
            Some(node) => names.insert(name.clone(), node),
        };
        self.pending.push((directory, name, node));
        Ok(before)
    }

    fn get(&self, path: &str) -> Option<Node> {
        let (directory, name) = split(path);
        self.current.get(&directory)?.get(&name).copied()
    }
}

impl Disk for SimulatedDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        if state.get(path).is_none() {
            state.change()?;
            state.space()?;
            state.set(path, Some(Node::Directory))?;
            state.current.insert(path.to_owned(), BTreeMap::new());
            state.durable.insert(path.to_owned(), BTreeMap::new());
        }
        Ok(())
    }

    fn create_file(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        state.change()?;
        state.space()?;
        if state.get(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let index = state.files.len();
        state.files.push(FileState::default());
        state.set(path, Some(Node::File(index)))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), index }))
    }

    fn open_file(&self, path: &str) -> io::Result<Option<Box<dyn DiskFile>>> {
        let state = self.lock();
        state.alive()?;
        Ok(match state.get(path) {
            Some(Node::File(index)) => Some(Box::new(SimulatedFile { disk: self.clone(), index })),
            Some(Node::Directory) | None => None,
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.change()?;
        let node = state.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.set(to, Some(node))?;
        state.set(from, None)?;
        Ok(())
    }

    fn remove_file(&self, path: &str) -> io::Result<bool> {
        let mut state = self.lock();
        state.change()?;
        match state.get(path) {
            None => Ok(false),
            Some(_) => Ok(state.set(path, None)?.is_some()),
        }
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.change()?;
        if !state.current.get(path).is_some_and(BTreeMap::is_empty) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.set(path, None)?;
        state.current.remove(path);
        Ok(())
    }

    fn names(&self, path: &str) -> io::Result<Option<Vec<String>>> {
        let state = self.lock();
        state.alive()?;
        Ok(state.current.get(path).map(|names| names.keys().cloned().collect()))
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.change()?;
        let (now, later) =
            std::mem::take(&mut state.pending).into_iter().partition(|it| it.0 == path);
        state.pending = later;
        let now: Vec<(String, String, Option<Node>)> = now;
        for (directory, name, node) in now {
            let names = state.durable.entry(directory).or_default();
            match node {
                None => drop(names.remove(&name)),
                Some(node) => drop(names.insert(name, node)),
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    index: usize,
}

impl DiskFile for SimulatedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        let done = state.change().and_then(|()| state.space());
        // A failure in the middle leaves a part.
        let written = if done.is_ok() { bytes.len() } else { bytes.len() / 2 };
        state.files[self.index].bytes.extend_from_slice(&bytes[..written]);
        done
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.change()?;
        let length = usize::try_from(length).unwrap();
        let file = &mut state.files[self.index];
        file.bytes.truncate(length);
        file.synced = file.synced.min(length);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.change()?;
        let file = &mut state.files[self.index];
        file.synced = file.bytes.len();
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let state = self.disk.lock();
        state.alive()?;
        Ok(u64::try_from(state.files[self.index].bytes.len()).unwrap())
    }

    fn read_at(&self, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
        let state = self.disk.lock();
        state.alive()?;
        let bytes = &state.files[self.index].bytes;
        let start = usize::try_from(offset).unwrap().min(bytes.len());
        Ok(bytes[start..bytes.len().min(start.saturating_add(limit))].to_vec())
    }
}
