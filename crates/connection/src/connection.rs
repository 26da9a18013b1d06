//! Runs commands on one host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::children::{Command, Input};
use gantry_process::clock::Clock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::OnceCell;

use crate::control_folder::ControlFolder;
use crate::error::ConnectionError;
use crate::marker::{Marker, TrailerScanner};
use crate::session::{Session, Start, Streams, lost};
use crate::shell;
use crate::target::{Become, InvalidTarget, Target, Transport};

/// How long a login may take, `sudo` included: PAM waits seconds after a wrong password.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the end of a shared connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How much output of a command is held in memory; the rest is counted.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// Bytes that are read from an input at once.
const READ_BYTES: usize = 64 << 10;

/// What all connections of a run have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The environment of `ssh`: it needs `HOME`, `PATH` and the user's agent.
    pub environment: BTreeMap<String, String>,
    /// Where the sockets of shared connections are.
    pub control_folder: Arc<ControlFolder>,
    /// The clock that limits are measured with.
    pub clock: Clock,
}

/// A host on which commands run. The first command connects; all of them share the connection,
/// which [`Connection::close`] ends.
#[derive(Debug)]
pub struct Connection {
    target: Target,
    settings: Settings,
    control_path: PathBuf,
    random: Mutex<fastrand::Rng>,
    opened: OnceCell<()>,
}

/// A command to run.
#[derive(Clone, Debug, Default)]
pub struct Request<'r> {
    /// The program and its arguments, which no shell reads.
    pub words: Vec<String>,
    /// The user it runs as, if not the one who logs in.
    pub r#become: Option<&'r Become>,
    /// How long it may take.
    pub limit: Option<Duration>,
}

/// What a command did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandResult {
    /// Its exit code; 128 and the signal if it was killed.
    pub code: u8,
    /// Its output.
    pub stdout: Vec<u8>,
    /// How many bytes of output are not in `stdout`, because there was too much.
    pub dropped_bytes: u64,
    /// Its messages.
    pub stderr: String,
    /// What login shells, ssh and sudo printed before it began.
    pub preamble: String,
}

impl Connection {
    /// Prepares a connection; nothing is started.
    ///
    /// # Errors
    /// A value of the target cannot be given to a program.
    pub fn new(
        target: Target,
        settings: Settings,
        random: fastrand::Rng,
    ) -> Result<Self, InvalidTarget> {
        if let Transport::Ssh(ssh) = &target.transport {
            ssh.check()?;
        }
        let control_path = settings.control_folder.socket();
        let (random, opened) = (Mutex::new(random), OnceCell::new());
        Ok(Self { target, settings, control_path, random, opened })
    }

    /// The host.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Connects, unless that was done.
    ///
    /// # Errors
    /// The host cannot be reached.
    pub async fn open(&self) -> Result<(), ConnectionError> {
        let connect = || async {
            let words = vec!["true".to_owned()];
            let request = Request { words, ..Request::default() };
            let session = self.start(&request, self.marker(), Ending::Exec, Input::Null).await?;
            session.finish(&self.settings.clock, LOGIN_TIMEOUT).await.map(drop)
        };
        self.opened.get_or_try_init(connect).await.copied()
    }

    /// Runs a command without input, and holds its output.
    ///
    /// # Errors
    /// The host cannot be reached, `sudo` refuses, the connection is lost, or the time is over. A
    /// command that fails is no error.
    pub async fn run(&self, request: &Request<'_>) -> Result<CommandResult, ConnectionError> {
        self.transfer(request, &mut tokio::io::empty(), None).await
    }

    /// Runs a command with the input of a reader. Its output goes to a writer, or is held.
    ///
    /// # Errors
    /// As [`Connection::run`]; or the reader or writer fails.
    pub async fn transfer(
        &self,
        request: &Request<'_>,
        input: &mut (dyn AsyncRead + Unpin + Send),
        output: Option<&mut (dyn AsyncWrite + Unpin + Send)>,
    ) -> Result<CommandResult, ConnectionError> {
        self.open().await?;
        let marker = self.marker();
        let mut session = self.start(request, marker, Ending::Status, Input::Piped).await?;
        let work = self.exchange(&mut session, marker, input, output);
        match request.limit {
            None => work.await,
            Some(limit) => {
                let timed_out = |_| ConnectionError::CommandTimedOut { limit };
                self.settings.clock.timeout(limit, work).await.map_err(timed_out)?
            }
        }
    }

    /// Starts a program that speaks in frames. It ends when its input closes.
    ///
    /// # Errors
    /// As [`Connection::run`].
    pub async fn session(&self, request: &Request<'_>) -> Result<Session, ConnectionError> {
        self.open().await?;
        self.start(request, self.marker(), Ending::Exec, Input::Piped).await
    }

    /// Ends the shared connection, if there is one.
    pub async fn close(&self) {
        let Transport::Ssh(ssh) = &self.target.transport else { return };
        if self.opened.get().is_none() {
            return;
        }
        let command = self.program("ssh", ssh.exit_arguments(&self.control_path), Input::Null);
        let Ok((mut child, mut pipes)) = command.start_piped() else { return };
        let end = async {
            while pipes.stderr.next().await.is_some() {}
            child.wait().await
        };
        // One that has ended already is no failure, and one that hangs ends by itself.
        let _ = self.settings.clock.timeout(CLOSE_TIMEOUT, end).await;
    }

    /// The line with which a user connects in the same way; absent for local commands.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        match &self.target.transport {
            Transport::Local => None,
            Transport::Ssh(ssh) => Some(ssh.line()),
        }
    }

    fn marker(&self) -> Marker {
        Marker::random(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn start(
        &self,
        request: &Request<'_>,
        marker: Marker,
        ending: Ending,
        input: Input,
    ) -> Result<Session, ConnectionError> {
        let mut script = command_script(&request.words, ending, marker);
        let mut password = None;
        if let Some(wanted) = request.r#become {
            check_user(&wanted.user)?;
            password = wanted.password.as_ref().map(|password| (self.marker(), password));
            let prompt = password.map(|(prompt, _)| prompt);
            script = sudo_script(&wanted.user, prompt, &script);
        }
        let command = match &self.target.transport {
            Transport::Local => self.program("/bin/sh", vec!["-c".to_owned(), script], input),
            Transport::Ssh(ssh) => {
                let command = shell::login_command(&script)?;
                self.program("ssh", ssh.arguments(&self.control_path, &command), input)
            }
        };
        let failed = |source| {
            let program = command.program.display().to_string();
            ConnectionError::Start { program, source }
        };
        let (child, pipes) = command.start_piped().map_err(failed)?;
        let uses_sudo = request.r#become.is_some();
        let start = Start { marker, password, uses_sudo, line: self.line() };
        let limit = LOGIN_TIMEOUT;
        let timed_out = |_| ConnectionError::LoginTimedOut { limit };
        let begin = Session::begin(child, pipes, start);
        self.settings.clock.timeout(limit, begin).await.map_err(timed_out)?
    }

    fn program(&self, program: &str, args: Vec<String>, input: Input) -> Command {
        let mut environment = self.settings.environment.clone();
        // Messages are read by their words.
        environment.insert("LC_ALL".to_owned(), "C".to_owned());
        environment.remove("LANGUAGE");
        let home = environment.get("HOME").map(PathBuf::from).filter(|home| home.is_dir());
        let directory = home.unwrap_or_else(|| PathBuf::from("/"));
        Command { program: program.into(), args, environment, directory, input }
    }

    async fn exchange(
        &self,
        session: &mut Session,
        marker: Marker,
        input: &mut (dyn AsyncRead + Unpin + Send),
        output: Option<&mut (dyn AsyncWrite + Unpin + Send)>,
    ) -> Result<CommandResult, ConnectionError> {
        let preamble = session.preamble();
        let mut sink = OutputSink { stdout: Vec::new(), dropped_bytes: 0, writer: output };
        let code = stream(session.streams(), marker, input, &mut sink).await?;
        let (end, messages) = session.wait(&self.settings.clock).await?;
        let code = match code {
            Some(code) => code,
            None => match lost(end, &messages, self.line()) {
                Some(error) => return Err(error),
                None => end.code(),
            },
        };
        let OutputSink { stdout, dropped_bytes, writer: _ } = sink;
        Ok(CommandResult { code, stdout, dropped_bytes, stderr: messages, preamble })
    }
}

/// Writes the input and reads the output and the messages until the output ends. Returns the exit
/// code, if the command reached its end.
async fn stream(
    streams: Streams<'_>,
    marker: Marker,
    input: &mut (dyn AsyncRead + Unpin + Send),
    sink: &mut OutputSink<'_>,
) -> Result<Option<u8>, ConnectionError> {
    let Streams { stdin, mut output, stderr, messages } = streams;
    let write = async {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = input.read(&mut buffer).await.map_err(local("read the input"))?;
            // A command that does not read to the end is judged by its exit code.
            if read == 0 || stdin.write(&buffer[..read]).await.is_err() {
                stdin.close();
                return Ok::<(), ConnectionError>(());
            }
        }
    };
    let read = async {
        let mut trailer = TrailerScanner::new(marker);
        while let Some(piece) = output.next().await {
            sink.take(&trailer.push(&piece)).await?;
        }
        let (code, rest) = trailer.finish();
        sink.take(&rest).await?;
        sink.flush().await?;
        Ok(code)
    };
    let collect = async {
        while let Some(piece) = stderr.next().await {
            messages.push(&piece);
        }
    };
    let both = async { tokio::try_join!(write, read).map(|((), code)| code) };
    tokio::pin!(both, collect);
    tokio::select! {
        code = &mut both => code,
        // The end of the messages is not the end of the output.
        () = &mut collect => both.await,
    }
}

fn local(what: &'static str) -> impl Fn(std::io::Error) -> ConnectionError {
    move |source| ConnectionError::Local { what: what.to_owned(), source }
}

/// Where output goes: to a writer, or into memory.
struct OutputSink<'s> {
    stdout: Vec<u8>,
    dropped_bytes: u64,
    writer: Option<&'s mut (dyn AsyncWrite + Unpin + Send)>,
}

impl OutputSink<'_> {
    async fn take(&mut self, piece: &[u8]) -> Result<(), ConnectionError> {
        if let Some(writer) = &mut self.writer {
            return writer.write_all(piece).await.map_err(local("write the output"));
        }
        let held = MAX_OUTPUT_BYTES.saturating_sub(self.stdout.len()).min(piece.len());
        self.stdout.extend_from_slice(&piece[..held]);
        self.dropped_bytes += (piece.len() - held) as u64;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ConnectionError> {
        match &mut self.writer {
            Some(writer) => writer.flush().await.map_err(local("write the output")),
            None => Ok(()),
        }
    }
}

/// How the output of a command ends.
#[derive(Clone, Copy)]
enum Ending {
    /// With the output of the program that replaces the shell.
    Exec,
    /// With the marker and the exit status.
    Status,
}

/// The script that prints the marker to both streams and runs the words. The marker is in two
/// parts, so a shell that prints its command does not print the marker.
fn command_script(words: &[String], ending: Ending, marker: Marker) -> String {
    let words = shell::quote_words(words);
    let (one, other) = halves(marker);
    let begin = format!("printf %s%s {one} {other}; printf %s%s {one} {other} >&2");
    match ending {
        Ending::Exec => format!("{begin}; exec {words}"),
        Ending::Status => {
            format!("{begin}; {words}; s=$?; printf %s%s%03d {one} {other} $s; exit $s")
        }
    }
}

/// The script that runs a script as another user.
fn sudo_script(user: &str, prompt: Option<Marker>, script: &str) -> String {
    let (user, script) = (shell::quote(user), shell::quote(script));
    let locale = "LC_ALL=C; export LC_ALL";
    match prompt {
        // What sudo remembers is not used, so that it always asks.
        Some(prompt) => {
            let (one, other) = halves(prompt);
            let ask = format!("-k -S -p \"${{p}}{other}\"");
            format!("p={one}; {locale}; exec sudo -H {ask} -u {user} -- /bin/sh -c {script}")
        }
        None => format!("{locale}; exec sudo -H -n -u {user} -- /bin/sh -c {script}"),
    }
}

fn halves(marker: Marker) -> (String, String) {
    let text = marker.to_string();
    let (one, other) = text.split_at(text.len() / 2);
    (one.to_owned(), other.to_owned())
}

/// Refuses a user that `sudo` would read as an option, or as the number of one.
fn check_user(user: &str) -> Result<(), InvalidTarget> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    if user.is_empty() || user.starts_with(['-', '#']) || user.contains(is_odd) {
        return Err(InvalidTarget { what: "the user to become", value: user.to_owned() });
    }
    Ok(())
}

impl CommandResult {
    /// Whether the command succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == 0
    }
}

#[cfg(test)]
mod tests;
