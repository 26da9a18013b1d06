//! Removes what runs left behind whose owner was killed together with its guard.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gantry_process::clock::Clock;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{Identity, cgroups};

/// How long a killed process may take to exit: it only has to wake up.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is polled. There is no event to wait for: it is not our child.
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Kills the processes and removes the folders below `root` of every owner that is gone.
///
/// What cannot be removed, because it belongs to another user, does not keep a run from starting.
pub(super) async fn remove_leftovers(root: &Path, clock: &Clock) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let owner = entry.file_name().to_str().and_then(|name| name.parse::<Identity>().ok());
        // A folder that is not named after an owner is not one of ours.
        let Some(owner) = owner else { continue };
        if !owner.is_running() {
            // The folder identifies the groups, so it is removed last or kept.
            if kill_and_wait(&entry.path(), clock).await {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Kills the recorded processes of a run's folder, and waits until they are gone, control groups
/// included. Returns whether they are.
async fn kill_and_wait(folder: &Path, clock: &Clock) -> bool {
    let running = running(folder);
    for process in &running {
        if let Some(group) = Pid::from_raw(process.pid) {
            // It may have exited since we looked, or belong to another user.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    let deadline = clock.moment() + KILL_TIMEOUT;
    let groups = cgroups::name(folder);
    loop {
        let ended = !running.iter().any(|process| process.is_running());
        let removed = ended && cgroups::remove(&groups);
        if removed || clock.moment() >= deadline {
            return removed;
        }
        clock.sleep(KILL_POLL_INTERVAL).await;
    }
}

/// Returns the recorded processes of a run's folder that still run: the very process, not one with
/// its pid.
pub(super) fn running(folder: &Path) -> Vec<Identity> {
    let Ok(records) = fs::read_dir(folder.join("processes")) else { return Vec::new() };
    let records = records.flatten().filter_map(|record| fs::read_to_string(record.path()).ok());
    let known = records.filter_map(|stat| Identity::from_stat(&stat));
    known.filter(|process| process.is_running()).collect()
}
