//! Directories of the store, as they are on disk.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use gantry_store::{Durability, OnDamage, Options, Store};
use tempfile::TempDir;

/// Files by name.
pub type Files = BTreeMap<String, Vec<u8>>;
/// The visible content of a store: space and key, with the revision and the value.
pub type Picture = BTreeMap<(String, Vec<u8>), (u64, Vec<u8>)>;

/// Creates a private directory, in memory if the machine has `/dev/shm`.
///
/// # Panics
/// When none can be created.
#[must_use]
pub fn directory() -> TempDir {
    let shared = Path::new("/dev/shm");
    let made = if shared.is_dir() { TempDir::new_in(shared) } else { TempDir::new() };
    let made = made.expect("a temporary directory can be made");
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o700)).expect("it is ours");
    made
}

/// Returns options with small files, so that a few changes fill many.
#[must_use]
pub fn options(path: &Path, checkpoint_bytes: usize, damage: OnDamage) -> Options {
    let mut options = Options::new(Durability::Durable(path.to_owned()));
    options.segment_bytes = 4608;
    options.checkpoint_bytes = checkpoint_bytes;
    options.damage = damage;
    options
}

/// The files of a directory.
///
/// # Panics
/// When they cannot be read.
#[must_use]
pub fn read(path: &Path) -> Files {
    let entries = fs::read_dir(path).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let file = |path: std::path::PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        (name != "lock").then(|| (name, fs::read(&path).expect("the file can be read")))
    };
    paths.filter_map(file).collect()
}

/// Writes files into a directory.
///
/// # Panics
/// When they cannot be written.
pub fn write(path: &Path, files: &Files) {
    for (name, bytes) in files {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path.join(name)).expect("the file is new");
        file.write_all(bytes).expect("the disk has free space");
    }
}

/// Returns everything a store holds.
#[must_use]
pub fn picture(store: &Store<(), ()>) -> Picture {
    let snapshot = store.snapshot();
    let mut picture = Picture::new();
    for (name, space) in snapshot.spaces() {
        for entry in space.iter() {
            let key = (name.to_owned(), entry.key.to_vec());
            picture.insert(key, (entry.revision.get(), entry.value.to_vec()));
        }
    }
    picture
}
