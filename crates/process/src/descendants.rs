//! Processes that children leave behind: finds all of a family, ends them, and reaps them.
//!
//! A process group ends with its owner, but a process may leave its group. So a program that starts
//! others becomes the subreaper of its descendants: what is orphaned below it becomes its child and
//! cannot escape. To which family an orphan belongs is known by its group, its session, its
//! ancestors, or a variable that the family's environment had when it was started.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, set_child_subreaper, waitpid,
};
use tokio::io::unix::AsyncFd;

use crate::children::{ChildExit, async_fd};
use crate::clock::Clock;

/// The interval between two looks at the processes of a family that is being ended.
const FAMILY_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The largest environment of a process that is searched for the mark of its family.
const MAX_ENVIRONMENT_BYTES: u64 = 1 << 20;

/// The flag of a process that exits, in `/proc/PID/stat` (`PF_EXITING`).
const EXITING_FLAG: u32 = 0x4;

/// Makes this process the parent of orphaned descendants.
///
/// # Errors
/// The kernel does not support it.
pub fn become_subreaper() -> io::Result<()> {
    // Any process id but none turns it on.
    Ok(set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// A process and the processes that it left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The first process, which has its own group, if it is known.
    pub root: Option<i32>,
    /// A variable with a value that only processes of this family have: `NAME=value`.
    pub mark: Option<String>,
}

/// One process of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    group: i32,
    session: i32,
    is_zombie: bool,
    /// Whether it is on its way out, and may hold files still.
    is_exiting: bool,
    /// With the id it names one process for ever.
    start_time: u64,
}

impl Family {
    /// Kills every process of the family but this one, and reaps those that are children of this
    /// process, until none is left. The root may have been waited for before.
    ///
    /// # Errors
    /// Processes are left after `limit`; the error has their ids.
    pub async fn end(&self, clock: &Clock, limit: Duration) -> io::Result<()> {
        let deadline = clock.moment() + limit;
        loop {
            let left = self.kill_once()?;
            if left.is_empty() {
                return Ok(());
            }
            if clock.moment() >= deadline {
                let message = format!("processes {left:?} could not be ended in {limit:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            clock.sleep(FAMILY_CHECK_INTERVAL).await;
        }
    }

    /// Kills and reaps each member once, and returns the ids of those that were there. With a mark
    /// these are also the ids of all processes that exit just now: whose they are is not known.
    ///
    /// # Errors
    /// The processes of this machine cannot be listed.
    pub fn kill_once(&self) -> io::Result<Vec<i32>> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let all = list_processes()?;
        let marked = |it: &Process| match &self.mark {
            Some(mark) => environment_has(it.id, mark),
            None => false,
        };
        let members = members(&all, own, self.root, marked);
        for it in &members {
            if !it.is_zombie {
                kill_exactly(it);
            } else if it.parent == own {
                reap_zombie(it.id);
            }
        }
        // Zombies of other parents hold nothing, and are theirs to wait for.
        let left = members.iter().filter(|it| !it.is_zombie || it.parent == own);
        let mut left: Vec<i32> = left.map(|it| it.id).collect();
        if self.mark.is_some() {
            // A process that exits has no environment any more, but has its files for a moment:
            // whose family it is of cannot be known, so its end is waited for.
            let exiting = all.iter().filter(|it| it.is_exiting && !left.contains(&it.id));
            let exiting: Vec<i32> = exiting.map(|it| it.id).collect();
            left.extend(exiting);
        }
        Ok(left)
    }
}

/// Reaps orphans that have ended. Leaders of groups are left to those who started them.
///
/// # Errors
/// The processes of this machine cannot be listed.
pub fn reap_orphans() -> io::Result<()> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    for it in list_processes()? {
        if it.is_zombie && it.parent == own && it.id != it.group {
            reap_zombie(it.id);
        }
    }
    Ok(())
}

/// Returns the members of a family: by group, session or mark, and all of their descendants.
fn members(
    all: &[Process],
    own: i32,
    root: Option<i32>,
    marked: impl Fn(&Process) -> bool,
) -> Vec<Process> {
    let mut found = BTreeSet::new();
    for it in all {
        let is_own = |root: i32| it.id == root || it.group == root || it.session == root;
        let is_member = root.is_some_and(is_own) || marked(it);
        if is_member && it.id != own {
            found.insert(it.id);
        }
    }
    loop {
        let before = found.len();
        let children = all.iter().filter(|it| found.contains(&it.parent) && it.id != own);
        let children: Vec<i32> = children.map(|it| it.id).collect();
        found.extend(children);
        if found.len() == before {
            return all.iter().filter(|it| found.contains(&it.id)).copied().collect();
        }
    }
}

/// Kills a process unless its id has come to mean another one.
fn kill_exactly(process: &Process) {
    let Some(id) = Pid::from_raw(process.id) else { return };
    // A process that has ended in between needs no signal.
    let Ok(handle) = pidfd_open(id, PidfdFlags::empty()) else { return };
    if read_process(process.id).is_some_and(|it| it.start_time == process.start_time) {
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

fn reap_zombie(id: i32) -> Option<WaitStatus> {
    let id = Pid::from_raw(id)?;
    // Somebody else may have waited for it.
    waitpid(Some(id), WaitOptions::NOHANG).ok().flatten().map(|(_, status)| status)
}

fn list_processes() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|it| it.parse::<i32>().ok());
        // A process may end while the directory is read.
        all.extend(id.and_then(read_process));
    }
    Ok(all)
}

fn read_process(id: i32) -> Option<Process> {
    parse_stat(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Reads `/proc/PID/stat`. The name of the program is in parentheses and may contain anything.
fn parse_stat(id: i32, text: &str) -> Option<Process> {
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    // The first thread may have ended before the others, which still hold files and memory.
    let is_zombie = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
    let flags: u32 = fields.get(6)?.parse().ok()?;
    Some(Process {
        id,
        is_zombie,
        is_exiting: !is_zombie && flags & EXITING_FLAG != 0,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}

/// Whether a process was started with a variable. That of a process of somebody else is not read.
fn environment_has(id: i32, mark: &str) -> bool {
    use std::io::Read as _;
    let Ok(file) = std::fs::File::open(format!("/proc/{id}/environ")) else { return false };
    let mut bytes = Vec::new();
    let read = file.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut bytes);
    read.is_ok() && bytes.split(|it| *it == 0).any(|it| it == mark.as_bytes())
}

/// A process that somebody else forked and that became a child of this one.
#[derive(Debug)]
pub struct AdoptedChild {
    id: Pid,
    /// Readable when the process has ended.
    end: AsyncFd<OwnedFd>,
}

impl AdoptedChild {
    /// Watches a process, inside a runtime. It must have a group of its own.
    ///
    /// # Errors
    /// There is no such process.
    pub fn new(id: i32) -> io::Result<Self> {
        let id = Pid::from_raw(id).ok_or(io::ErrorKind::InvalidInput)?;
        let end = async_fd(pidfd_open(id, PidfdFlags::NONBLOCK)?)?;
        Ok(Self { id, end })
    }

    /// The id of the process.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    /// Sends SIGTERM to the process. It has not been waited for, so its id is still its own.
    pub fn terminate(&self) {
        let _ = kill_process(self.id, Signal::TERM);
    }

    /// Sends SIGKILL to the processes of its group.
    pub fn kill(&self) {
        let _ = kill_process_group(self.id, Signal::KILL);
    }

    /// Returns when the process has ended. Cancel-safe; must not be called again after that.
    ///
    /// # Errors
    /// The process cannot be waited for: it is not a child of this process.
    pub async fn wait(&mut self) -> io::Result<ChildExit> {
        loop {
            let mut ready = self.end.readable().await?;
            match waitpid(Some(self.id), WaitOptions::NOHANG)? {
                Some((_, status)) => return Ok(exit_of(status)),
                None => ready.clear_ready(),
            }
        }
    }
}

fn exit_of(status: WaitStatus) -> ChildExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ChildExit::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, signal) => ChildExit::Signaled(signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::Command;

    fn process(id: i32, parent: i32, group: i32, session: i32) -> Process {
        Process { id, parent, group, session, is_zombie: false, is_exiting: false, start_time: 1 }
    }

    #[test]
    fn a_stat_line_is_read_whatever_the_program_is_called() {
        let rest = "S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 555 1000 2";
        for name in ["sleep", "a b", "x) S 1 2", "((("] {
            let found = parse_stat(4, &format!("4 ({name}) {rest}")).unwrap();
            let expected = Process { start_time: 555, ..process(4, 7, 8, 9) };
            assert_eq!(found, expected, "{name}");
        }
        let zombie = parse_stat(4, &format!("4 (a) {}", rest.replacen('S', "Z", 1))).unwrap();
        assert!(zombie.is_zombie);
        let threads = rest.replacen('S', "Z", 1).replace(" 20 0 1 0 ", " 20 0 3 0 ");
        let ending = parse_stat(4, &format!("4 (a) {threads}")).unwrap();
        assert!(!ending.is_zombie, "threads are left");
        let exiting = rest.replace(" 4194560 ", " 4194564 ");
        assert!(parse_stat(4, &format!("4 (a) {exiting}")).unwrap().is_exiting);
        let exited = exiting.replacen('S', "Z", 1);
        assert!(!parse_stat(4, &format!("4 (a) {exited}")).unwrap().is_exiting);
        for bad in ["", "4 (a)", "4 (a) S x 8 9", "4 (a) S 7 8 9"] {
            assert_eq!(parse_stat(4, bad), None, "{bad}");
        }
    }

    #[test]
    fn a_family_is_found_by_group_session_mark_and_descent() {
        let all = [
            process(1, 0, 1, 1),
            process(10, 1, 1, 1),    // this process
            process(20, 10, 20, 1),  // the root of another family
            process(30, 10, 30, 1),  // the root
            process(31, 30, 31, 1),  // left the group
            process(32, 31, 32, 32), // its child, in a session of its own
            process(33, 10, 30, 1),  // an orphan of the group
            process(34, 10, 34, 30), // an orphan of the session
            process(35, 10, 35, 35), // an orphan with the mark
            process(36, 35, 36, 36), // a child of that
            process(37, 10, 37, 37), // an orphan of somebody else
        ];
        let found = members(&all, 10, Some(30), |it| it.id == 35);
        let ids: Vec<i32> = found.iter().map(|it| it.id).collect();
        assert_eq!(ids, [30, 31, 32, 33, 34, 35, 36]);
        // The root is gone: what descended from it is found by the other signs.
        let without: Vec<Process> = all.iter().filter(|it| it.id != 30).copied().collect();
        let found = members(&without, 10, Some(30), |_| false);
        assert_eq!(found.iter().map(|it| it.id).collect::<Vec<_>>(), [33, 34]);
        // This process is never a member, whatever it is marked with.
        assert!(members(&all, 10, Some(99), |it| it.id == 10).is_empty());
    }

    /// A daemon that left group and session is found by the mark of its environment.
    #[tokio::test]
    async fn a_process_that_left_everything_is_ended() {
        let mark = format!("GANTRY_TEST_FAMILY={}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let command = Command {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), "setsid sleep 1000 & echo $!; wait".to_owned()],
            environment: [
                (name.to_owned(), value.to_owned()),
                ("PATH".into(), "/usr/bin:/bin".into()),
            ]
            .into(),
            directory: "/".into(),
            input: crate::children::Input::Null,
        };
        let (mut child, mut output) = command.start().unwrap();
        let daemon: i32 = output.next().await.unwrap().parse().unwrap();
        let left = |id| read_process(id).is_some_and(|it| !it.is_zombie);
        // Until it has its own session it would die with its group.
        while read_process(daemon).is_some_and(|it| it.session != daemon) {
            tokio::task::yield_now().await;
        }
        let family = Family { root: Some(child.id()), mark: Some(mark) };
        child.kill();
        child.wait().await.unwrap();
        assert!(left(daemon), "the group is not enough");
        family.end(&Clock::system(), Duration::from_secs(5)).await.unwrap();
        assert!(!left(daemon));
    }
}
