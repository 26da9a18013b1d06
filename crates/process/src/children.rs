//! Child processes: the only place that starts programs of the operating system.
//!
//! A child has a process group of its own, the environment it is given and nothing of ours, and no
//! input, unless [`Input`] says otherwise. The owner of a [`Child`] owns the whole group: when the
//! child has ended, and when it is dropped, every process that is left in the group is killed. So
//! no process outlives its owner unnoticed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{self, ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;

/// The longest line of output; a longer one is split.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program, by its path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// The directory it starts in.
    pub directory: PathBuf,
    /// Its input.
    pub input: Input,
}

/// The input of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// There is none.
    #[default]
    Null,
    /// A pipe to which nothing is written. It closes when the [`Child`] is dropped, and when this
    /// process ends, however that happens: see [`end_with_input`].
    Tether,
    /// That of this process: descendants of a tethered process are tethered, too.
    Inherited,
    /// A pipe to which its owner writes; only [`Command::start_piped`] gives it out, otherwise it
    /// is a [`Input::Tether`].
    Piped,
}

/// Ends this process at once when its input closes. A process that is tethered, and all of its
/// descendants that inherit its input, end with the process that started it, even if that is
/// killed.
///
/// # Errors
/// No thread can be started.
pub fn end_with_input() -> io::Result<()> {
    use std::io::Read as _;
    let wait = || {
        let mut buffer = [0; 64];
        let mut input = io::stdin().lock();
        loop {
            match input.read(&mut buffer) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        // Nothing is cleaned up: its owner is gone.
        let _ = kill_process(rustix::process::getpid(), Signal::KILL);
    };
    std::thread::Builder::new().name("tether".to_owned()).spawn(wait).map(drop)
}

/// A process that was started, with all processes of its group.
pub struct Child {
    child: Option<process::Child>,
    /// Readable when the process has ended.
    end: AsyncFd<OwnedFd>,
    group: Pid,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    /// With a code.
    Exited(u8),
    /// By a signal.
    Signaled(i32),
}

impl ChildExit {
    /// The exit code as shells and kubelets report it: 128 plus the signal for one that was killed.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

/// The output of a process, line by line.
#[derive(Debug)]
pub struct Output {
    stdout: LineReader,
    stderr: LineReader,
}

impl Command {
    /// Starts it, inside a runtime, with one stream for both kinds of output, so that they are read
    /// in the order in which they were written.
    ///
    /// # Errors
    /// As [`Command::start`].
    pub fn start_merged(&self) -> io::Result<(Child, OutputBytes)> {
        let (output, stdout) = io::pipe()?;
        let stderr = stdout.try_clone()?;
        let mut command = self.prepare();
        command.stdout(stdout).stderr(stderr);
        let child = command.spawn()?;
        // The ends of the pipe that are for the process.
        drop(command);
        let group = Pid::from_child(&child);
        let prepared = || -> io::Result<(AsyncFd<OwnedFd>, OutputBytes)> {
            let end = async_fd(pidfd_open(group, PidfdFlags::NONBLOCK)?)?;
            let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(output))?;
            Ok((end, OutputBytes { pipe: Some(pipe) }))
        };
        match prepared() {
            Ok((end, output)) => Ok((Child { child: Some(child), end, group }, output)),
            Err(error) => {
                kill_group(group);
                reap(child);
                Err(error)
            }
        }
    }

    /// Starts it, inside a runtime, with a pipe for each stream, of which bytes are written and
    /// read as they are. Without [`Input::Piped`] there is no pipe for input.
    ///
    /// # Errors
    /// As [`Command::start`].
    pub fn start_piped(&self) -> io::Result<(Child, Pipes)> {
        let mut command = self.prepare();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let is_piped = self.input == Input::Piped;
        let stdin = if is_piped { child.stdin.take().map(OwnedFd::from) } else { None };
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        let group = Pid::from_child(&child);
        let prepared = || -> io::Result<(AsyncFd<OwnedFd>, Pipes)> {
            let end = async_fd(pidfd_open(group, PidfdFlags::NONBLOCK)?)?;
            let receiver = |pipe: Option<OwnedFd>| -> io::Result<OutputBytes> {
                Ok(OutputBytes { pipe: pipe.map(pipe::Receiver::from_owned_fd).transpose()? })
            };
            let stdin = stdin.map(pipe::Sender::from_owned_fd).transpose()?;
            let (stdout, stderr) = (receiver(stdout)?, receiver(stderr)?);
            Ok((end, Pipes { stdin: InputBytes { pipe: stdin }, stdout, stderr }))
        };
        match prepared() {
            Ok((end, pipes)) => Ok((Child { child: Some(child), end, group }, pipes)),
            Err(error) => {
                kill_group(group);
                reap(child);
                Err(error)
            }
        }
    }

    fn prepare(&self) -> process::Command {
        let mut command = process::Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.directory)
            .stdin(match self.input {
                Input::Null => Stdio::null(),
                Input::Tether | Input::Piped => Stdio::piped(),
                Input::Inherited => Stdio::inherit(),
            })
            .process_group(0);
        command
    }

    /// Starts it, inside a runtime.
    ///
    /// # Errors
    /// The program or directory does not exist, it may not be executed, or no more processes can be
    /// started.
    pub fn start(&self) -> io::Result<(Child, Output)> {
        let mut command = self.prepare();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let group = Pid::from_child(&child);
        let prepared = || -> io::Result<(AsyncFd<OwnedFd>, Output)> {
            let end = async_fd(pidfd_open(group, PidfdFlags::NONBLOCK)?)?;
            let output = Output {
                stdout: LineReader::new(stdout.map(OwnedFd::from))?,
                stderr: LineReader::new(stderr.map(OwnedFd::from))?,
            };
            Ok((end, output))
        };
        match prepared() {
            Ok((end, output)) => Ok((Child { child: Some(child), end, group }, output)),
            Err(error) => {
                kill_group(group);
                reap(child);
                Err(error)
            }
        }
    }
}

impl Child {
    /// The id of the process, which is that of its group.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Sends SIGTERM to the processes of the group.
    pub fn terminate(&self) {
        if self.child.is_some() {
            // A group without processes has ended already.
            let _ = kill_process_group(self.group, Signal::TERM);
        }
    }

    /// Sends SIGTERM to the process alone: programs that end their own children in order must not
    /// find them ended.
    pub fn terminate_process(&self) {
        if self.child.is_some() {
            // A process that has ended and was not waited for ignores it.
            let _ = kill_process(self.group, Signal::TERM);
        }
    }

    /// Sends SIGKILL to the processes of the group.
    pub fn kill(&self) {
        if self.child.is_some() {
            kill_group(self.group);
        }
    }

    /// Returns when the process has ended, and kills what is left of its group. Cancel-safe, and
    /// may be called again.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub async fn wait(&mut self) -> io::Result<ChildExit> {
        let Some(child) = &mut self.child else {
            return Err(io::Error::other("the child was already waited for"));
        };
        loop {
            let mut ready = self.end.readable().await?;
            // Until it is waited for, its process id is not reused.
            kill_group(self.group);
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(child_exit(status));
            }
            ready.clear_ready();
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe; an OwnedFd stays open for as long as it is watched, which \
              is what that asks for"
)]
pub(crate) fn async_fd(end: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(end)
}

fn child_exit(status: ExitStatus) -> ChildExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => ChildExit::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, signal) => ChildExit::Signaled(signal.unwrap_or_default()),
    }
}

fn kill_group(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
}

/// Waits for a process that was killed, without blocking the caller.
fn reap(mut child: process::Child) {
    // If no thread can be started it is waited for here: it was killed, so that is a matter of
    // moments.
    let wait = move || {
        let _ = child.wait();
    };
    let _ = std::thread::Builder::new().name("reaper".to_owned()).spawn(wait);
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            kill_group(self.group);
            reap(child);
        }
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Child({})", self.id())
    }
}

impl Output {
    /// The next line of either stream, without its line break; `None` when both are closed. Invalid
    /// UTF-8 is replaced. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.stdout.take().or_else(|| self.stderr.take()) {
                return Some(line);
            }
            if self.stdout.pipe.is_none() && self.stderr.pipe.is_none() {
                return None;
            }
            tokio::select! {
                // Either is cancel-safe: what was read is in its buffer.
                () = self.stdout.fill(), if self.stdout.pipe.is_some() => {}
                () = self.stderr.fill(), if self.stderr.pipe.is_some() => {}
            }
        }
    }
}

/// The output of a process as it was written, from both streams.
#[derive(Debug)]
pub struct OutputBytes {
    /// Absent when it is closed.
    pipe: Option<pipe::Receiver>,
}

impl OutputBytes {
    /// Returns the next bytes; `None` when no process has the stream open any more. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let pipe = self.pipe.as_mut()?;
        let mut buffer = Vec::with_capacity(MAX_LINE_BYTES);
        match pipe.read_buf(&mut buffer).await {
            Ok(1..) => Some(buffer),
            // A stream that fails is closed.
            Ok(0) | Err(_) => {
                self.pipe = None;
                None
            }
        }
    }
}

/// The pipes of a process.
#[derive(Debug)]
pub struct Pipes {
    /// What is written to its input.
    pub stdin: InputBytes,
    /// Its output.
    pub stdout: OutputBytes,
    /// Its messages.
    pub stderr: OutputBytes,
}

/// The input of a process. It closes when this is dropped.
#[derive(Debug)]
pub struct InputBytes {
    /// Absent when it is closed.
    pipe: Option<pipe::Sender>,
}

impl InputBytes {
    /// Writes all bytes, and waits while the pipe is full. If this is cancelled, some may have been
    /// written.
    ///
    /// # Errors
    /// The process has closed its input, or it was closed here: `BrokenPipe`.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let pipe = self.pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.write_all(bytes).await
    }

    /// Closes it: the process reads the end of its input.
    pub fn close(&mut self) {
        self.pipe = None;
    }
}

/// One stream, in lines.
#[derive(Debug)]
struct LineReader {
    /// Absent when it is closed.
    pipe: Option<pipe::Receiver>,
    buffer: Vec<u8>,
}

impl LineReader {
    fn new(pipe: Option<OwnedFd>) -> io::Result<Self> {
        let pipe = pipe.map(pipe::Receiver::from_owned_fd).transpose()?;
        Ok(Self { pipe, buffer: Vec::new() })
    }

    /// Takes a line that was read.
    fn take(&mut self) -> Option<String> {
        let end = self.buffer.iter().position(|it| *it == b'\n');
        let (length, rest) = match end {
            Some(end) => (
                end.min(MAX_LINE_BYTES),
                if end > MAX_LINE_BYTES { MAX_LINE_BYTES } else { end + 1 },
            ),
            None if self.buffer.len() >= MAX_LINE_BYTES => (MAX_LINE_BYTES, MAX_LINE_BYTES),
            None if self.pipe.is_none() && !self.buffer.is_empty() => {
                (self.buffer.len(), self.buffer.len())
            }
            None => return None,
        };
        let line = String::from_utf8_lossy(&self.buffer[..length]).into_owned();
        self.buffer.drain(..rest);
        Some(line)
    }

    /// Reads more. A stream that fails is closed.
    async fn fill(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        if !matches!(pipe.read_buf(&mut self.buffer).await, Ok(1..)) {
            self.pipe = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, environment: &[(&str, &str)]) -> Command {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Command {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
            environment: environment.iter().map(pair).collect(),
            directory: "/".into(),
            input: Input::Null,
        }
    }

    async fn lines(output: &mut Output) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(line) = output.next().await {
            all.push(line);
        }
        all
    }

    #[tokio::test]
    async fn output_and_exit_codes_are_reported() {
        let table = [
            ("echo $A; pwd; exit 3", ChildExit::Exited(3), 3, vec!["one", "/"]),
            ("printf 'a\\n\\nb'", ChildExit::Exited(0), 0, vec!["a", "", "b"]),
            ("echo e >&2; kill -KILL $$", ChildExit::Signaled(9), 137, vec!["e"]),
            ("kill -TERM $$", ChildExit::Signaled(15), 143, vec![]),
            // Our own environment is not inherited.
            ("echo ${CARGO_PKG_NAME-none}", ChildExit::Exited(0), 0, vec!["none"]),
        ];
        for (script, expected, code, said) in table {
            let (mut child, mut output) = shell(script, &[("A", "one")]).start().unwrap();
            let end = child.wait().await.unwrap();
            assert_eq!((end, end.code()), (expected, code), "{script}");
            assert_eq!(lines(&mut output).await, said, "{script}");
        }
        let long = format!("head -c {} /dev/zero | tr '\\0' x", MAX_LINE_BYTES + 5);
        let (mut child, mut output) = shell(&long, &[("PATH", "/usr/bin:/bin")]).start().unwrap();
        let sizes: Vec<usize> = lines(&mut output).await.iter().map(String::len).collect();
        assert_eq!(sizes, [MAX_LINE_BYTES, 5]);
        child.wait().await.unwrap();
    }

    #[tokio::test]
    async fn a_terminated_child_ends() {
        let (mut child, mut output) =
            shell("trap 'exit 7' TERM; echo up; while :; do :; done", &[]).start().unwrap();
        assert_eq!(output.next().await.as_deref(), Some("up"));
        child.terminate();
        assert_eq!(child.wait().await.unwrap(), ChildExit::Exited(7));
    }

    /// No process of its group is left, whether it ends or is dropped.
    #[tokio::test]
    async fn nothing_outlives_its_owner() {
        for is_dropped in [false, true] {
            let end = if is_dropped { "trap '' TERM; while :; do :; done" } else { "exit 0" };
            let script = format!("while :; do :; done & echo $!; {end}");
            let (mut child, mut output) = shell(&script, &[]).start().unwrap();
            let other: u32 = output.next().await.unwrap().parse().unwrap();
            match is_dropped {
                true => drop(child),
                false => assert_eq!(child.wait().await.unwrap(), ChildExit::Exited(0)),
            }
            // It never closes its end of the pipe itself: only its end does.
            assert_eq!(lines(&mut output).await, Vec::<String>::new(), "process {other}");
        }
    }

    /// The input of a tethered process is open for as long as its owner lives; a descendant that
    /// inherits it ends, too, though it has a group of its own.
    #[tokio::test]
    async fn a_tethered_process_learns_that_its_owner_is_gone() {
        let variables = [("PATH", "/usr/bin:/bin")];
        let script = "exec 3<&0; setsid sh -c 'echo $$; cat <&3' & echo up; cat";
        let command = Command { input: Input::Tether, ..shell(script, &variables) };
        let (child, mut output) = command.start().unwrap();
        let mut first = [output.next().await.unwrap(), output.next().await.unwrap()];
        first.sort();
        assert_eq!(first[1], "up");
        drop(child);
        // Both have closed the pipe of their output: the group, and the one that left it.
        assert_eq!(lines(&mut output).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn merged_output_keeps_its_order_and_its_bytes() {
        let script = "printf 'a\\n'; printf 'b\\377' >&2; printf c; exit 4";
        let (mut child, mut output) = shell(script, &[]).start_merged().unwrap();
        let mut all = Vec::new();
        while let Some(bytes) = output.next().await {
            all.extend(bytes);
        }
        assert_eq!(all, b"a\nb\xffc");
        assert_eq!(child.wait().await.unwrap(), ChildExit::Exited(4));
    }

    #[tokio::test]
    async fn pipes_carry_bytes_in_both_directions() {
        let script = "printf 'e\\377' >&2; exec cat";
        let command =
            Command { input: Input::Piped, ..shell(script, &[("PATH", "/usr/bin:/bin")]) };
        let (mut child, mut pipes) = command.start_piped().unwrap();
        // More than a pipe holds, so that writing has to wait for reading.
        let sent: Vec<u8> = (0..300_000_u32).map(|it| it.to_le_bytes()[0]).collect();
        let write = async {
            pipes.stdin.write(&sent).await.unwrap();
            pipes.stdin.close();
            pipes.stdin.write(b"x").await.unwrap_err().kind()
        };
        let read = async {
            let mut all = Vec::new();
            while let Some(bytes) = pipes.stdout.next().await {
                all.extend(bytes);
            }
            all
        };
        let (after_close, received) = tokio::join!(write, read);
        assert_eq!(after_close, io::ErrorKind::BrokenPipe);
        assert!(received == sent, "{} bytes", received.len());
        assert_eq!(pipes.stderr.next().await.as_deref(), Some(&b"e\xff"[..]));
        assert_eq!(child.wait().await.unwrap(), ChildExit::Exited(0));
    }

    #[tokio::test]
    async fn a_process_that_ends_closes_its_input() {
        let command = Command { input: Input::Piped, ..shell("exit 5", &[]) };
        let (mut child, mut pipes) = command.start_piped().unwrap();
        assert_eq!(child.wait().await.unwrap(), ChildExit::Exited(5));
        let error = pipes.stdin.write(&[0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_missing_program_is_an_error() {
        let command = Command { program: "/no/such/program".into(), ..shell("", &[]) };
        assert_eq!(command.start().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
