//! Merges a context into the user's existing kubeconfig.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gantry_process::clock::Clock;
use gantry_serve::files;
use gantry_yaml as yaml;
use serde_json::{Value, json};

/// The lists of a kubeconfig whose entries are identified by name.
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];
/// How long to wait for a lock that another program holds. kubectl holds it for one write.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before trying the lock again.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeResult {
    /// The backup of the original file; none if it did not exist, or nothing had to be changed.
    pub backup: Option<PathBuf>,
    /// The mode of the file, if users other than its owner may read it.
    pub exposed: Option<u32>,
}

/// Adds the cluster, user and context of `ours` to the kubeconfig at `path`, which is created if it
/// does not exist, and makes that context the current one.
///
/// A symbolic link is followed: the file it points to is replaced, atomically and with the same
/// mode. Meanwhile the file is locked in the way of kubectl, so that no write of another program is
/// lost. Everything else in the file stays, except for comments, so a backup is kept beside `path`.
///
/// # Errors
/// The file is not a kubeconfig, is locked by another program, or cannot be written. It is
/// unchanged then.
pub async fn merge_into_file(
    clock: &Clock,
    path: &Path,
    ours: &str,
) -> anyhow::Result<MergeResult> {
    let named = || format!("could not add a context to {}", path.display());
    let target = files::link_target(path).with_context(named)?;
    for file in [path, &target] {
        let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
        parent.map_or(Ok(()), std::fs::create_dir_all).with_context(named)?;
    }
    // The target is locked last, so that a process that uses another link waits here and there is
    // no deadlock.
    let _named = Lock::acquire(clock, path).await.with_context(named)?;
    let _target = match target == path {
        true => None,
        false => Some(Lock::acquire(clock, &target).await.with_context(named)?),
    };
    let before = match std::fs::read_to_string(&target) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(named),
    };
    let merged = merge(before.as_deref().unwrap_or_default(), ours).with_context(named)?;
    if before.as_deref() == Some(merged.as_str()) {
        return Ok(MergeResult { backup: None, exposed: None });
    }
    let backup = match &before {
        Some(text) => {
            let beside = backup_path(path);
            files::write_private(&beside, text.as_bytes()).with_context(named)?;
            Some(beside)
        }
        None => None,
    };
    let mode = files::replace(&target, merged.as_bytes()).with_context(named)?;
    Ok(MergeResult { backup, exposed: (mode & 0o077 != 0).then_some(mode) })
}

/// The lock of a kubeconfig as in client-go: a file beside it that exists while it is held.
struct Lock(PathBuf);

impl Lock {
    async fn acquire(clock: &Clock, of: &Path) -> anyhow::Result<Self> {
        let mut name = of.file_name().context("it names no file")?.to_owned();
        name.push(".lock");
        let path = of.with_file_name(name);
        let give_up = clock.moment() + LOCK_TIMEOUT;
        loop {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Self(path)),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error)
                        .with_context(|| format!("could not lock {}", path.display()));
                }
                Err(_) if clock.moment() >= give_up => bail!(
                    "another program has held the lock {} for {} s; if none is running, remove \
                     that file",
                    path.display(),
                    LOCK_TIMEOUT.as_secs()
                ),
                Err(_) => clock.sleep(LOCK_RETRY_DELAY).await,
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(
                file = %self.0.display(), %error,
                "could not remove the lock of a kubeconfig"
            );
        }
    }
}

/// Returns the path of the backup of a file.
fn backup_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".before-gantry");
    path.with_file_name(name)
}

/// Merges two kubeconfigs; the entries of `ours` override.
fn merge(theirs: &str, ours: &str) -> anyhow::Result<String> {
    let ours = document(ours)?;
    let mut merged = document(theirs)?;
    if merged.is_null() {
        merged = json!({"apiVersion": "v1", "kind": "Config"});
    }
    if !merged.is_object() || merged["kind"].as_str().is_some_and(|kind| kind != "Config") {
        bail!("it is not a kubeconfig: `kind` must be `Config`");
    }
    for list in LISTS {
        let mut entries = match &merged[list] {
            Value::Null => Vec::new(),
            Value::Array(entries) => entries.clone(),
            other => bail!("it is not a kubeconfig: `{list}` must be a list, but is {other}"),
        };
        for entry in ours[list].as_array().into_iter().flatten() {
            match entries.iter_mut().find(|old| old["name"] == entry["name"]) {
                Some(old) => old.clone_from(entry),
                None => entries.push(entry.clone()),
            }
        }
        merged[list] = Value::Array(entries);
    }
    merged["current-context"] = ours["current-context"].clone();
    Ok(yaml::write(&merged)?)
}

/// Returns the only document of a text; null if there is none.
fn document(text: &str) -> anyhow::Result<Value> {
    let documents = yaml::read(text)?;
    match documents.as_slice() {
        [] => Ok(Value::Null),
        [one] => Ok(one.to_json()),
        _ => bail!("it holds more than one YAML document"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const OURS: &str = "
apiVersion: v1
kind: Config
clusters: [{name: gantry, cluster: {server: 'https://127.0.0.1:6443'}}]
users: [{name: gantry-admin, user: {client-key-data: aw==}}]
contexts: [{name: gantry, context: {cluster: gantry, user: gantry-admin}}]
current-context: gantry
";

    fn names(text: &str, list: &str) -> Vec<String> {
        let entries = document(text).unwrap()[list].as_array().unwrap().clone();
        entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_context_is_added_to_existing_ones() {
        let theirs = "kind: Config\ncurrent-context: work\npreferences: {colors: true}\n\
                      clusters:\n- name: work\n  cluster: {server: https://work}\n\
                      - name: gantry\n  cluster: {server: https://old}\n";
        let merged = merge(theirs, OURS).unwrap();
        let tree = document(&merged).unwrap();
        assert_eq!(names(&merged, "clusters"), ["work", "gantry"]);
        assert_eq!(tree["clusters"][1]["cluster"]["server"], "https://127.0.0.1:6443");
        assert_eq!(tree["current-context"], "gantry");
        assert_eq!(tree["preferences"]["colors"], true, "what else was there stays");
        assert_eq!(merge(&merged, OURS).unwrap(), merged, "once is enough");
    }

    #[test]
    fn an_empty_file_becomes_a_kubeconfig() {
        let merged = merge("", OURS).unwrap();
        assert_eq!(document(&merged).unwrap()["kind"], "Config");
        assert_eq!(names(&merged, "users"), ["gantry-admin"]);
    }

    #[tokio::test]
    async fn other_files_are_left_alone() {
        let table = [
            ("kind: Pod", "`kind` must be `Config`"),
            ("- a\n- b", "`kind` must be `Config`"),
            ("kind: Config\nclusters: {}", "`clusters` must be a list, but is {}"),
            ("kind: Config\n---\nkind: Config", "more than one YAML document"),
        ];
        let directory = tempfile::tempdir().unwrap();
        for (text, expected) in table {
            let path = directory.path().join("config");
            std::fs::write(&path, text).unwrap();
            let error = merge_into_file(&Clock::system(), &path, OURS).await.unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert!(!directory.path().join("config.lock").exists(), "the lock is released");
        }
    }

    #[tokio::test]
    async fn the_original_file_is_backed_up() {
        let (directory, clock) = (tempfile::tempdir().unwrap(), Clock::system());
        let path = directory.path().join("deep/config");
        let nothing = MergeResult { backup: None, exposed: None };
        assert_eq!(
            merge_into_file(&clock, &path, OURS).await.unwrap(),
            nothing,
            "there was nothing to keep"
        );
        assert_eq!(
            merge_into_file(&clock, &path, OURS).await.unwrap(),
            nothing,
            "there is nothing to change"
        );
        std::fs::write(&path, "# mine\nkind: Config\n").unwrap();
        let kept = merge_into_file(&clock, &path, OURS).await.unwrap().backup.unwrap();
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "# mine\nkind: Config\n");
    }

    #[tokio::test]
    async fn a_symlink_is_followed_and_kept() {
        let (directory, clock) = (tempfile::tempdir().unwrap(), Clock::system());
        let (target, link) =
            (directory.path().join("dotfiles/config"), directory.path().join("config"));
        std::fs::create_dir(directory.path().join("dotfiles")).unwrap();
        std::fs::write(&target, "kind: Config\n").unwrap();
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("dotfiles/config", &link).unwrap();
        let added = merge_into_file(&clock, &link, OURS).await.unwrap();
        assert_eq!(added.exposed, Some(0o640), "the mode stays, and is reported");
        assert_eq!(added.backup, Some(directory.path().join("config.before-gantry")));
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let merged = std::fs::read_to_string(&target).unwrap();
        assert_eq!(names(&merged, "contexts"), ["gantry"]);
    }

    /// All threads read, add and write: without a lock the last write would win.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_merges_lose_nothing() {
        let (directory, clock) = (tempfile::tempdir().unwrap(), Clock::system());
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for at in 0..24 {
            let path = if at % 2 == 0 { link.clone() } else { target.clone() };
            let (clock, ours) = (clock.clone(), OURS.replace("gantry", &format!("c{at:02}")));
            writers.spawn(async move { merge_into_file(&clock, &path, &ours).await.unwrap() });
        }
        writers.join_all().await;
        let merged = std::fs::read_to_string(&target).unwrap();
        let mut found = names(&merged, "contexts");
        found.sort();
        assert_eq!(found, (0..24).map(|at| format!("c{at:02}")).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_lock_that_is_not_released_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(directory.path().join("config.lock"), "").unwrap();
        let hand = gantry_process::clock::FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
        let clock = hand.clock();
        let (added, ()) = tokio::join!(merge_into_file(&clock, &path, OURS), async {
            hand.jump_to(clock.moment() + LOCK_TIMEOUT);
        });
        let error = format!("{:#}", added.unwrap_err());
        assert!(
            error.contains("config.lock for 10 s; if none is running, remove that file"),
            "{error}"
        );
        assert!(!path.exists());
    }
}
