//! Starts the core of an engine, and reads its replies.

use std::time::Duration;

use gantry_process::children::{Child, Command, Input};
use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};

use super::core_process::CoreReply;
use super::link::{self, Link};
use crate::host::Host;

/// How long the core may take to connect, and to end.
pub(super) const CORE_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts the core, and returns it when it is connected. Its output is that of this process.
pub(super) async fn start_core(
    host: &Host,
    clock: &Clock,
    tasks: &mut Tasks,
) -> Result<(Child, Link), String> {
    let failed = |error: std::io::Error| format!("could not start the engine core: {error}");
    let (listener, name) = link::listen().map_err(failed)?;
    let command = Command {
        program: host.executable.clone(),
        args: vec!["engine-core".to_owned(), name],
        environment: host.environment.clone(),
        directory: "/".into(),
        input: if host.confinement().is_some() { Input::Inherited } else { Input::Null },
    };
    let (child, mut output) = command.start().map_err(failed)?;
    let log = host.clone();
    tasks.spawn("core output", OnLoss::CarryOn, move |stop| async move {
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
    let accepted = clock.timeout(CORE_TIMEOUT, link::accept(&listener, child.id())).await;
    let link = accepted.map_err(|_| "the engine core did not start in time".to_owned())?;
    Ok((child, link.map_err(failed)?))
}

/// Returns the fingerprint in a reply that says that it is done.
pub(super) fn done(reply: std::io::Result<CoreReply>) -> Result<String, String> {
    match reply {
        Ok(CoreReply::Done { fingerprint }) => Ok(fingerprint),
        Ok(CoreReply::Failed { message }) => Err(message),
        Ok(CoreReply::Text { .. }) => Err("the engine core gave a wrong answer".to_owned()),
        Err(error) => Err(format!("the engine core does not answer: {error}")),
    }
}
