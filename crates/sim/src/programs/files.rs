//! The files of pods with programs: a directory for each pod, with the content of its volumes.
//!
//! Files of one volume change together: they are written to a new directory, and a link to it
//! replaces the previous one by a rename, as kubelets do. A reader finds the old files or the new
//! ones, never some of both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::Clock;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::account::{Accounts, PodIdentity, Token};
use crate::pod_config::{FileContent, VolumeContent, VolumeFile, checked_path};

/// The volumes of a pod by name.
pub(super) type Volumes = Arc<BTreeMap<String, VolumeContent>>;
/// The result of the first write, once there is one.
type WriteResult = Option<Result<(), String>>;

/// How long after a failure files are written again.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// After which part of its lifetime a token is replaced, in tenths.
const TOKEN_REFRESH_TENTHS: i32 = 8;
/// The timeout of a token request.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The link to the files of a volume, and the temporary link it is renamed from.
const DATA_LINKS: [&str; 2] = ["..data", "..data_tmp"];

/// The directory of a pod. It is removed when the last reference is dropped.
#[derive(Debug)]
pub(super) struct PodFiles {
    directory: PathBuf,
    wanted: watch::Sender<Volumes>,
    written: watch::Receiver<WriteResult>,
    unused: CancellationToken,
}

impl Drop for PodFiles {
    fn drop(&mut self) {
        self.unused.cancel();
    }
}

/// Writes the files of one pod.
pub(super) struct PodFileWriter {
    directory: PathBuf,
    wanted: watch::Receiver<Volumes>,
    written: watch::Sender<WriteResult>,
    unused: CancellationToken,
    identity: PodIdentity,
    accounts: Option<Arc<dyn Accounts>>,
    tokens: BTreeMap<(String, i64), (Token, Timestamp)>,
}

/// Returns the directory of a pod below `base`, and the writer of its files.
///
/// # Errors
/// The UID of the pod cannot be the name of a directory.
pub(super) fn pod_files(
    base: &Path,
    identity: PodIdentity,
    volumes: Volumes,
    accounts: Option<Arc<dyn Accounts>>,
) -> Result<(PodFiles, PodFileWriter), String> {
    let uid = identity.uid.as_str();
    if uid.is_empty() || !uid.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
        return Err(format!("the pod's uid {uid:?} cannot be the name of a directory"));
    }
    let directory = base.join(uid);
    let (wanted, volumes) = watch::channel(volumes);
    let (result_sender, written) = watch::channel(None);
    let unused = CancellationToken::new();
    let keeper = PodFileWriter {
        directory: directory.clone(),
        wanted: volumes,
        written: result_sender,
        unused: unused.clone(),
        identity,
        accounts,
        tokens: BTreeMap::new(),
    };
    Ok((PodFiles { directory, wanted, written, unused }, keeper))
}

impl PodFiles {
    /// Returns the directory of the pod's files.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the directory of a volume.
    pub(super) fn volume(&self, name: &str) -> PathBuf {
        volume_directory(&self.directory, name)
    }

    /// Returns the desired volumes.
    pub(super) fn volumes(&self) -> Volumes {
        Arc::clone(&self.wanted.borrow())
    }

    /// Sets the desired volumes.
    pub(super) fn set_volumes(&self, volumes: Volumes) {
        self.wanted.send_if_modified(|now| {
            let differs = **now != *volumes;
            *now = volumes;
            differs
        });
    }

    /// Completes when the files were written for the first time, or could not be.
    pub(super) async fn wait_until_written(&self) -> Result<(), String> {
        let mut written = self.written.clone();
        match written.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err("the files of this pod are no longer written".to_owned()),
        }
    }
}

fn volume_directory(directory: &Path, name: &str) -> PathBuf {
    directory.join("volumes").join(name)
}

impl PodFileWriter {
    /// Writes files as they change until they are no longer used; then removes them.
    pub(super) async fn run(mut self, clock: &Clock, stop: CancellationToken) {
        loop {
            let volumes = self.wanted.borrow_and_update().clone();
            let result = self.write(&volumes, clock).await;
            let again = match &result {
                Ok(()) => self.next_token_refresh(clock.now()),
                Err(error) => {
                    tracing::warn!(
                        pod = %self.identity.pod, error,
                        "could not write the files of a pod"
                    );
                    Some(RETRY_DELAY)
                }
            };
            self.written.send_replace(Some(result));
            let due = async {
                match again {
                    Some(wait) => clock.sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // Each may be dropped: they only wait.
                () = self.unused.cancelled() => break,
                () = stop.cancelled() => {
                    // Programs are still stopping; files they leave are removed at the next start.
                    self.unused.cancelled().await;
                    break;
                }
                changed = self.wanted.changed() => if changed.is_err() { break },
                () = due => {}
            }
        }
        let directory = self.directory.clone();
        let removed = tokio::task::spawn_blocking(move || fs::remove_dir_all(directory)).await;
        if let Ok(Err(error)) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(pod = %self.identity.pod, %error, "could not remove the files of a pod");
        }
    }

    /// Returns how long until the first of the tokens must be replaced.
    fn next_token_refresh(&self, now: Timestamp) -> Option<Duration> {
        let first = self.tokens.values().map(|(_, until)| *until).min()?;
        Some(Duration::try_from(first.duration_since(now)).unwrap_or_default().max(RETRY_DELAY))
    }

    async fn write(&mut self, volumes: &Volumes, clock: &Clock) -> Result<(), String> {
        let mut all = Vec::new();
        for (name, content) in volumes.iter() {
            let files = match content {
                VolumeContent::NotProvided => continue,
                VolumeContent::Scratch => None,
                VolumeContent::Files(files) => Some(self.bytes(files, clock).await?),
            };
            all.push((name.clone(), files));
        }
        let directory = self.directory.clone();
        let write = move || -> io::Result<()> {
            for (name, files) in all {
                // The server validates names of volumes; an invalid name is an error here.
                let checked = checked_path(&name).map_err(io::Error::other)?;
                let volume = volume_directory(&directory, &checked);
                make_directory(&volume)?;
                if let Some(files) = files {
                    write_volume(&volume, &files)?;
                }
            }
            make_directory(&directory)
        };
        let written = tokio::task::spawn_blocking(write).await.map_err(|it| it.to_string())?;
        written.map_err(|error| format!("could not write the files of volumes: {error}"))
    }

    async fn bytes(
        &mut self,
        files: &BTreeMap<String, VolumeFile>,
        clock: &Clock,
    ) -> Result<BTreeMap<String, (Bytes, u32)>, String> {
        let mut all = BTreeMap::new();
        for (path, VolumeFile { content, mode }) in files {
            let bytes = match content {
                FileContent::Bytes(bytes) => bytes.clone(),
                FileContent::Token { audience, expiration_seconds } => {
                    self.token(audience, *expiration_seconds, clock).await?
                }
            };
            all.insert(path.clone(), (bytes, *mode));
        }
        Ok(all)
    }

    async fn token(
        &mut self,
        audience: &str,
        seconds: i64,
        clock: &Clock,
    ) -> Result<Bytes, String> {
        let (key, now) = ((audience.to_owned(), seconds), clock.now());
        if let Some((token, until)) = self.tokens.get(&key)
            && *until > now
        {
            return Ok(token.text.clone().into());
        }
        let Some(accounts) = &self.accounts else {
            return Err("service account tokens are not available".to_owned());
        };
        let asked = accounts.token(&self.identity, audience, seconds);
        let failed = |why: String| {
            format!("could not get a token of service account {}: {why}", self.identity.account)
        };
        let token =
            clock.timeout(TOKEN_TIMEOUT, asked).await.map_err(|it| failed(it.to_string()))?;
        let token = token.map_err(failed)?;
        let life = token.expires.duration_since(now);
        let until = now.checked_add(life / 10 * TOKEN_REFRESH_TENTHS).unwrap_or(now);
        let bytes = token.text.clone().into();
        self.tokens.insert(key, (token, until));
        Ok(bytes)
    }
}

/// Creates a directory that only this user can read.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes the files that another process left in a directory.
pub(super) fn remove_stale(base: &Path) -> io::Result<()> {
    match fs::remove_dir_all(base) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    make_directory(base)
}

/// Replaces the files of a volume by these, atomically.
fn write_volume(volume: &Path, files: &BTreeMap<String, (Bytes, u32)>) -> io::Result<()> {
    let [data, fresh] = DATA_LINKS.map(|it| volume.join(it));
    let before = fs::read_link(&data).ok();
    let number = before.as_deref().and_then(Path::to_str).and_then(|it| it.strip_prefix("..v"));
    let number = number.and_then(|it| it.parse::<u64>().ok()).map_or(0, |it| it.wrapping_add(1));
    let name = format!("..v{number}");
    let directory = volume.join(&name);
    // Left by an interrupted write.
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    make_directory(&directory)?;
    for (path, (bytes, mode)) in files {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            make_directory(parent)?;
        }
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        io::Write::write_all(&mut file, bytes)?;
        file.set_permissions(fs::Permissions::from_mode(*mode))?;
    }
    remove_file(&fresh)?;
    symlink(&name, &fresh)?;
    fs::rename(&fresh, &data)?;
    let top = |path: &String| path.split('/').next().unwrap_or_default().to_owned();
    let wanted: BTreeSet<String> = files.keys().map(top).collect();
    let mut known = BTreeSet::new();
    for entry in fs::read_dir(volume)? {
        let entry = entry?.file_name();
        let entry = entry.to_string_lossy().into_owned();
        if !entry.starts_with("..") {
            known.insert(entry);
        }
    }
    for name in known.difference(&wanted) {
        remove_file(&volume.join(name))?;
    }
    for name in wanted.difference(&known) {
        symlink(Path::new(DATA_LINKS[0]).join(name), volume.join(name))?;
    }
    match before {
        Some(before) => fs::remove_dir_all(volume.join(before)),
        None => Ok(()),
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(files: &[(&str, &str, u32)]) -> BTreeMap<String, (Bytes, u32)> {
        let file = |(path, text, mode): &(&str, &str, u32)| {
            ((*path).to_owned(), (Bytes::copy_from_slice(text.as_bytes()), *mode))
        };
        files.iter().map(file).collect()
    }

    #[test]
    fn files_of_a_volume_change_together() {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("v");
        make_directory(&volume).unwrap();
        let read = |name: &str| fs::read_to_string(volume.join(name)).ok();
        write_volume(&volume, &content(&[("a", "1", 0o640), ("deep/b", "2", 0o600)])).unwrap();
        assert_eq!([read("a"), read("deep/b")], [Some("1".to_owned()), Some("2".to_owned())]);
        let mode = fs::metadata(volume.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::metadata(&volume).unwrap().permissions().mode() & 0o777, 0o700);
        // A reader that opened the link before sees the old file whole.
        let old = fs::canonicalize(volume.join("a")).unwrap();
        write_volume(&volume, &content(&[("a", "3", 0o600), ("c", "4", 0o600)])).unwrap();
        assert_eq!([read("a"), read("c")], [Some("3".to_owned()), Some("4".to_owned())]);
        assert_eq!(read("deep/b"), None);
        assert!(!old.exists(), "what was replaced is removed");
        let versions = fs::read_dir(&volume).unwrap().count();
        assert_eq!(versions, 4, "two links, `..data`, and the files");
    }

    #[test]
    fn stale_directories_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("pods");
        remove_stale(&base).unwrap();
        fs::write(base.join("left"), "x").unwrap();
        remove_stale(&base).unwrap();
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
    }

    #[test]
    fn an_invalid_uid_is_rejected() {
        for uid in ["", "../x", "a/b", "a b"] {
            let identity = PodIdentity {
                pod: gantry_reconcile::Key::new("n", "p"),
                uid: serde_json::from_value(serde_json::json!(uid)).unwrap(),
                account: "default".to_owned(),
                node: "n".to_owned(),
            };
            let made = pod_files(Path::new("/nowhere"), identity, Volumes::default(), None);
            assert!(made.is_err(), "{uid:?}");
        }
    }
}
