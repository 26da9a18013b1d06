//! One run of programs: their folder and their processes, neither of which outlives this process.
//!
//! Three mechanisms ensure that. Dropping a [`Run`] kills its processes and removes its folder.
//! When this process ends in any other way, be it `exit`, Ctrl-C or `kill -9`, a guard process
//! notices that the pipe to us is closed and does the same. Should the guard be gone too, the next
//! run finds the folder, sees by pid and start time that its owner is gone, and cleans up then.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use gantry_process::clock::Clock;
use rustix::process::{Pid, Signal, kill_process_group};

pub mod cgroups;
mod identity;
mod leftovers;

pub use identity::Identity;

/// Distinguishes the runs of one process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Records its own identity before it executes the program, so that no program ever runs
/// unrecorded: `exec` changes neither the pid nor the start time.
const RECORD: &str =
    r#"read -r stat <"/proc/$$/stat" && printf '%s\n' "$stat" >"$0" && [ -s "$0" ] && exec "$@""#;

/// Waits until we are gone, then kills the recorded processes and removes control groups and, last
/// because they are named after it, the folder. Twenty is the index of the start time after the
/// name of a program, which is in brackets because it may contain spaces.
const GUARD: &str = r#"
started() {
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    set -- ${stat##*) }
    echo "${20}"
}
while read -r _; do :; done
for record in "$0"/processes/*; do
    read -r stat 2>/dev/null <"$record" || continue
    pid=${stat%% *}
    set -- ${stat##*) }
    if [ "$(started "$pid")" = "${20}" ]; then kill -s KILL -- "-$pid"; fi
done
gone() {
    name=gantry-${0##*/}
    for group in "/sys/fs/cgroup/$name" /sys/fs/cgroup/*/"$name"; do
        if [ -d "$group" ]; then find "$group" -depth -type d -delete || return 1; fi
    done
    rm -rf "$0"
}
tries=0
until gone 2>/dev/null || [ "$tries" -ge 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
"#;

/// How much of each log is shown after a failure: enough for a Go panic's first lines, short enough
/// to be read.
const TAIL: u64 = 3000;

/// A folder and the processes that live in it.
#[derive(Debug)]
pub struct Run {
    folder: PathBuf,
    processes: Vec<Process>,
    guard: Option<Child>,
}

#[derive(Debug)]
struct Process {
    name: &'static str,
    child: Child,
}

impl Run {
    /// Creates a new folder below `root`, after removing what other runs left behind there.
    ///
    /// # Errors
    /// The folder cannot be written, or there is no `/proc` or no shell.
    pub async fn begin(root: &Path, clock: &Clock) -> Result<Self, RunError> {
        leftovers::remove_leftovers(root, clock).await;
        let owner = Identity::current().ok_or(RunError::NoProc)?;
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        // The owner is part of the name because a name appears atomically.
        let folder = root.join(format!("{owner}-{nth}"));
        for part in ["processes", "logs"] {
            let part = folder.join(part);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&part)
                .map_err(|source| RunError::Folder { path: part, source })?;
        }
        let mut run = Self { folder, processes: Vec::new(), guard: None };
        run.guard = Some(run.start_guard()?);
        Ok(run)
    }

    /// Where this run keeps its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that only its owner may read.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, RunError> {
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => Ok(path),
            Err(source) => Err(RunError::Folder { path, source }),
        }
    }

    /// Starts a program in its own process group, its output in a log.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(
        &mut self,
        name: &'static str,
        program: &Path,
        arguments: &[String],
    ) -> Result<(), RunError> {
        let failed = |source| RunError::Start { name, source };
        let log = File::create(self.log(name)).map_err(failed)?;
        let child = Command::new("sh")
            .args(["-c", RECORD])
            .arg(self.folder.join("processes").join(name))
            .arg(program)
            .args(arguments)
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        self.processes.push(Process { name, child });
        Ok(())
    }

    /// Returns the first program that has exited without being stopped.
    pub fn exited_process(&mut self) -> Option<(&'static str, ExitStatus)> {
        self.processes.iter_mut().find_map(|process| {
            let status = process.child.try_wait().ok().flatten()?;
            Some((process.name, status))
        })
    }

    /// The programs with their process ids, in the order in which they were started.
    #[must_use]
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        self.processes.iter().map(|process| (process.name, process.child.id())).collect()
    }

    /// Returns the end of every log, for a person to read.
    #[must_use]
    pub fn tails(&self) -> String {
        let tail = |process: &Process| {
            let text = tail(&self.log(process.name)).unwrap_or_else(|error| error.to_string());
            format!("--- {}\n{}\n", process.name, text.trim_end())
        };
        self.processes.iter().map(tail).collect()
    }

    /// Creates control groups of this run's own, in every hierarchy, and returns their path in it.
    ///
    /// # Errors
    /// Control groups cannot be created.
    pub fn cgroup(&self) -> Result<String, RunError> {
        let mounts = "/proc/self/mountinfo";
        let mounts = fs::read_to_string(mounts).map_err(|_| RunError::NoProc)?;
        let name = cgroups::name(&self.folder);
        for hierarchy in cgroups::hierarchies(&mounts)? {
            let path = hierarchy.join(&name);
            fs::create_dir_all(&path).map_err(|source| RunError::Folder { path, source })?;
        }
        Ok(format!("/{name}"))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.log"))
    }

    fn start_guard(&self) -> Result<Child, RunError> {
        Command::new("sh")
            .args(["-c", GUARD])
            .arg(&self.folder)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| RunError::Start { name: "guard", source })
    }
}

impl Drop for Run {
    /// Kills everything at once: the data is not read again. What fails here is left to the guard
    /// and to the next run, and a panic in a drop would abort the test process instead.
    fn drop(&mut self) {
        for process in &mut self.processes {
            // A child that was not waited for keeps its pid, so this cannot hit another process.
            if let Ok(None) = process.child.try_wait()
                && let Some(group) = i32::try_from(process.child.id()).ok().and_then(Pid::from_raw)
            {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        for process in &mut self.processes {
            let _ = process.child.wait();
        }
        // The guard waits for what takes a moment longer: the last processes of a control group.
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
        if cgroups::remove(&cgroups::name(&self.folder)) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The last lines of a file.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    match text.split_once('\n') {
        // Cut in the middle of a line: begin at the next.
        Some((_, whole)) if length > TAIL => Ok(whole.to_owned()),
        _ => Ok(text),
    }
}

/// Why a run or a program in it could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// This system does not list its processes.
    #[error("cannot read /proc/self/stat: test runs need Linux")]
    NoProc,
    /// This system does not allow us to create control groups.
    #[error("cannot make control groups")]
    Cgroups(#[from] cgroups::CgroupsError),
    /// A file or folder of the run cannot be written.
    #[error("could not write {}", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program did not start.
    #[error("could not start {name}")]
    Start {
        /// The program.
        name: &'static str,
        /// Why not.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests;
