//! The zygote: a Python process that has imported an engine's modules, and forks engines.
//!
//! It connects to a name in the abstract namespace, and so does each engine, whose connection is
//! its output. An engine says which request it was forked for, and its process id is that of its
//! connection: nobody else can claim to be it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use gantry_process::children::{Child, Command, Input};
use gantry_process::clock::Clock;
use gantry_process::descendants::AdoptedChild;
use gantry_process::tasks::{OnLoss, Tasks};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;

use super::Arguments;
use crate::executable;
use crate::host::Host;
use crate::tiny::link;

/// The program of the zygote.
const SCRIPT: &str = include_str!("zygote.py");
/// How long importing the modules may take.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a fork may take.
const FORK_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest first message of a connection.
const MAX_HELLO_BYTES: usize = 64 << 10;

/// Whether modules must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preloaded {
    /// Without them there is no zygote.
    Required,
    /// Without them engines fail when they import them.
    Optional,
}

/// A running zygote.
pub(super) struct Zygote {
    entry: String,
    /// One fork at a time.
    connection: Mutex<Connection>,
}

struct Connection {
    listener: UnixListener,
    control: UnixStream,
    /// Killed with everything in its group when it is dropped.
    _child: Child,
}

impl Zygote {
    /// Starts Python and waits until the modules are imported.
    pub(super) async fn start(
        arguments: &Arguments,
        preloaded: Preloaded,
        host: &Host,
        tasks: &mut Tasks,
    ) -> Result<Self, String> {
        let path = host.variable("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
        let program = executable::find("python3", path).ok_or("python3 is not in $PATH")?;
        // In Gantry's own image it is a name of this program, for the manifests of the original.
        if std::fs::canonicalize(&program).is_ok_and(|it| it == host.executable) {
            return Err("python3 in $PATH is a name of this program, and no Python".to_owned());
        }
        let failed = |error: io::Error| format!("could not start the zygote: {error}");
        let (listener, name) = link::listen().map_err(failed)?;
        let words = ["-c", SCRIPT, &name, &arguments.zygote_preload, &arguments.zygote_entry];
        let command = Command {
            program,
            args: words.map(str::to_owned).to_vec(),
            environment: host.environment.clone(),
            directory: "/".into(),
            input: Input::Null,
        };
        let (mut child, mut output) = command.start().map_err(failed)?;
        let log = host.clone();
        tasks.spawn("zygote output", OnLoss::CarryOn, move |stop| async move {
            loop {
                let line = tokio::select! {
                    biased;
                    // Either may be dropped: lines that were read are kept.
                    () = stop.cancelled() => return Ok(()),
                    line = output.next() => line,
                };
                let Some(line) = line else { return Ok(()) };
                log.log(&line);
            }
        });
        let id = child.id();
        let hello = async {
            tokio::select! {
                biased;
                hello = accept(&listener, |it| it.get("zygote").is_some(), Some(id)) => hello,
                // May be dropped otherwise: it is waited for again when it is killed.
                end = child.wait() => {
                    let end = end.map(|it| format!("it ended with code {}", it.code()));
                    Err(io::Error::other(end.unwrap_or_else(|error| error.to_string())))
                }
            }
        };
        let hello = tasks.clock().timeout(IMPORT_TIMEOUT, hello).await;
        let hello = hello.map_err(|_| "importing the modules took too long".to_owned())?;
        let (control, hello, _) = hello.map_err(failed)?;
        let missing = hello["failed"].as_object().filter(|it| !it.is_empty());
        match (missing, preloaded) {
            (Some(missing), Preloaded::Required) => {
                return Err(format!("modules are missing: {}", Value::Object(missing.clone())));
            }
            (Some(missing), Preloaded::Optional) => {
                host.log(&format!("modules are missing: {}", Value::Object(missing.clone())));
            }
            (None, _) => {}
        }
        let connection = Connection { listener, control, _child: child };
        Ok(Self { entry: arguments.zygote_entry.clone(), connection: Mutex::new(connection) })
    }

    /// Forks an engine, and returns it with its output.
    pub(super) async fn fork(
        &self,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
        clock: &Clock,
    ) -> io::Result<(AdoptedChild, UnixStream)> {
        let mut connection = self.connection.lock().await;
        let token = format!("{:016x}", fastrand::u64(..));
        let request = json!({"token": token, "arguments": arguments, "environment": environment});
        let fork = async {
            connection.control.write_all(format!("{request}\n").as_bytes()).await?;
            let wanted = |hello: &Value| hello["output"].as_str() == Some(&token);
            let (output, _, process) = accept(&connection.listener, wanted, None).await?;
            Ok::<_, io::Error>((AdoptedChild::new(process)?, output))
        };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the zygote did not fork in time");
        clock.timeout(FORK_TIMEOUT, fork).await.map_err(late)?
    }
}

impl fmt::Display for Zygote {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "a Python process at {}", self.entry)
    }
}

/// Accepts the connection whose first message is wanted, of a process if one is named; returns the
/// message and the process. Others are disconnected.
async fn accept(
    listener: &UnixListener,
    wanted: impl Fn(&Value) -> bool,
    process: Option<i32>,
) -> io::Result<(UnixStream, Value, i32)> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let credentials = stream.peer_cred()?;
        let own = rustix::process::getuid().as_raw();
        let Some(peer) = credentials.pid().filter(|_| credentials.uid() == own) else { continue };
        if process.is_some_and(|it| it != peer) {
            continue;
        }
        // Byte by byte: what follows the message is output.
        let mut line = Vec::new();
        while line.len() < MAX_HELLO_BYTES && line.last() != Some(&b'\n') {
            match stream.read_u8().await {
                Ok(byte) => line.push(byte),
                Err(_) => break,
            }
        }
        if let Ok(hello) = serde_json::from_slice::<Value>(&line)
            && wanted(&hello)
        {
            return Ok((stream, hello, peer));
        }
    }
}
