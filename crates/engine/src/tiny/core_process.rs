//! The process of an engine that holds its memory and its model.

use std::path::PathBuf;
use std::time::Duration;

use gantry_process::clock::Clock;
use serde::{Deserialize, Serialize};

use super::link::{self, Link};
use super::model;
use crate::host::Host;
use crate::ledger::{Change, Holder, Ledger};

/// The variable with the instance that a process belongs to.
pub const INSTANCE_VARIABLE: &str = "GANTRY_ENGINE_INSTANCE";
/// How long a core without its root stays: long enough that a leak is seen, and not for ever.
const ORPHAN_LIFETIME: Duration = Duration::from_secs(600);
/// The exit code of a core that cannot start.
const FAILED_EXIT_CODE: u8 = 1;

/// The settings of a core, as its root sends them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CoreSettings {
    pub(super) model: String,
    pub(super) instance: String,
    pub(super) ledgers: Option<PathBuf>,
    pub(super) accelerators: Vec<String>,
    pub(super) weight_bytes: u64,
    pub(super) cache_bytes: u64,
    pub(super) residue_bytes: u64,
}

/// What a root asks of its core.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum CoreRequest {
    /// Take memory and load the model.
    Load(CoreSettings),
    /// Give memory back; at level 2 drop the weights.
    Sleep { level: u8 },
    /// Take memory again.
    Wake,
    /// Generate text.
    Generate { prompt: String, count: usize },
    /// Give everything back and end.
    End,
}

/// What a core answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(super) enum CoreReply {
    /// It is done; with what identifies the weights.
    Done { fingerprint: String },
    /// The text.
    Text { text: String },
    /// It failed, and nothing has changed.
    Failed { message: String },
}

/// Where the model is.
enum Memory {
    /// Nothing was loaded.
    Empty,
    /// Weights and cache are taken of the accelerators.
    Accelerator { weights: Vec<u8>, cache: Vec<u8> },
    /// The weights are in the memory of the host.
    Host { weights: Vec<u8> },
    /// The weights are gone; they can be made again.
    Dropped,
}

struct Core {
    clock: Clock,
    settings: CoreSettings,
    holder: Option<Holder>,
    ledgers: Vec<Ledger>,
    memory: Memory,
}

/// Runs the core of the root that listens under a name, and returns its exit code.
pub async fn run(name: &str, host: &Host, clock: Clock) -> u8 {
    let mut link = match link::connect(name) {
        Ok(link) => link,
        Err(error) => {
            host.log(&format!("engine core: could not connect to its root: {error}"));
            return FAILED_EXIT_CODE;
        }
    };
    // Kept when its root is gone: what it holds is given back by its end and by nothing else.
    let mut core = None;
    match serve(&mut link, &mut core, host, &clock).await {
        Ok(()) => 0,
        Err(message) => {
            host.log(&format!("engine core: {message}"));
            // As with large engines: the memory stays until somebody ends this process.
            clock.sleep(ORPHAN_LIFETIME).await;
            FAILED_EXIT_CODE
        }
    }
}

async fn serve(
    link: &mut Link,
    core: &mut Option<Core>,
    host: &Host,
    clock: &Clock,
) -> Result<(), String> {
    loop {
        let request = link.receive::<CoreRequest>().await.map_err(|error| error.to_string())?;
        let Some(request) = request else { return Err("the root process is gone".to_owned()) };
        let reply = match (request, &mut *core) {
            (CoreRequest::Load(settings), core) => match Core::load(settings, clock.clone()) {
                Ok(loaded) => {
                    let reply = loaded.done();
                    *core = Some(loaded);
                    reply
                }
                Err(message) => {
                    host.log(&message);
                    CoreReply::Failed { message }
                }
            },
            (CoreRequest::End, core) => {
                if let Some(core) = core.take() {
                    core.release()?;
                }
                link.send(&CoreReply::Done { fingerprint: String::new() })
                    .await
                    .map_err(|error| error.to_string())?;
                return Ok(());
            }
            (_, None) => CoreReply::Failed { message: "nothing is loaded".to_owned() },
            (CoreRequest::Sleep { level }, Some(core)) => core.reply(|it| it.sleep(level)),
            (CoreRequest::Wake, Some(core)) => core.reply(Core::wake),
            (CoreRequest::Generate { prompt, count }, Some(core)) => match &core.memory {
                Memory::Accelerator { weights, .. } => {
                    CoreReply::Text { text: model::generate(weights, &prompt, count) }
                }
                Memory::Empty | Memory::Host { .. } | Memory::Dropped => {
                    CoreReply::Failed { message: "the model is asleep".to_owned() }
                }
            },
        };
        link.send(&reply).await.map_err(|error| error.to_string())?;
    }
}

impl Core {
    fn load(settings: CoreSettings, clock: Clock) -> Result<Self, String> {
        let mut ledgers = Vec::new();
        let mut holder = None;
        if let Some(directory) = &settings.ledgers {
            for uuid in &settings.accelerators {
                ledgers.push(Ledger::of(directory, uuid).map_err(|error| error.to_string())?);
            }
            let made = Holder::new(directory, &settings.instance, &settings.model);
            holder = Some(made.map_err(|error| format!("could not use the ledgers: {error}"))?);
        }
        let mut core = Self { clock, settings, holder, ledgers, memory: Memory::Empty };
        if let Err(message) = core.take(Change::Load) {
            if let Some(holder) = core.holder {
                holder.retire();
            }
            return Err(message);
        }
        core.memory = core.on_accelerator(core.make_weights());
        Ok(core)
    }

    fn make_weights(&self) -> Vec<u8> {
        let bytes = usize::try_from(self.settings.weight_bytes).unwrap_or(usize::MAX);
        model::make_weights(model::seed_of(&self.settings.model), bytes)
    }

    fn on_accelerator(&self, weights: Vec<u8>) -> Memory {
        let bytes = usize::try_from(self.settings.cache_bytes).unwrap_or(usize::MAX);
        // Written, so that the memory is really taken and not only promised.
        Memory::Accelerator { weights, cache: vec![1; bytes] }
    }

    fn done(&self) -> CoreReply {
        let fingerprint = match &self.memory {
            Memory::Accelerator { weights, cache } if !cache.is_empty() || !weights.is_empty() => {
                model::fingerprint(weights)
            }
            Memory::Accelerator { .. } | Memory::Empty | Memory::Host { .. } | Memory::Dropped => {
                String::new()
            }
        };
        CoreReply::Done { fingerprint }
    }

    fn reply(&mut self, act: impl FnOnce(&mut Self) -> Result<(), String>) -> CoreReply {
        match act(self) {
            Ok(()) => self.done(),
            Err(message) => CoreReply::Failed { message },
        }
    }

    /// Takes weights and cache of each accelerator, or of none.
    fn take(&self, change: Change) -> Result<(), String> {
        let bytes = self.settings.weight_bytes.saturating_add(self.settings.cache_bytes);
        for (at, ledger) in self.ledgers.iter().enumerate() {
            if let Err(error) = self.record(ledger, change, bytes, true) {
                for taken in &self.ledgers[..at] {
                    match change {
                        Change::Load | Change::Release | Change::Reap => {
                            self.record(taken, Change::Release, 0, false)?;
                        }
                        Change::Wake | Change::Sleep => {
                            let residue = self.settings.residue_bytes;
                            self.record(taken, Change::Sleep, residue, false)?;
                        }
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn record(
        &self,
        ledger: &Ledger,
        change: Change,
        bytes: u64,
        awake: bool,
    ) -> Result<(), String> {
        let Some(holder) = &self.holder else { return Ok(()) };
        let set = ledger.set(holder, change, bytes, awake, self.clock.now());
        set.map_err(|error| gantry_process::error_chain(&error))
    }

    fn sleep(&mut self, level: u8) -> Result<(), String> {
        self.memory = match std::mem::replace(&mut self.memory, Memory::Empty) {
            Memory::Accelerator { weights, .. } if level < 2 => {
                // Copied and not moved: it is the memory of another device.
                Memory::Host { weights: weights.as_slice().to_vec() }
            }
            Memory::Accelerator { .. } => Memory::Dropped,
            other => other,
        };
        for ledger in &self.ledgers {
            self.record(ledger, Change::Sleep, self.settings.residue_bytes, false)?;
        }
        Ok(())
    }

    fn wake(&mut self) -> Result<(), String> {
        if matches!(self.memory, Memory::Accelerator { .. }) {
            return Ok(());
        }
        self.take(Change::Wake)?;
        let weights = match std::mem::replace(&mut self.memory, Memory::Empty) {
            Memory::Host { weights } => weights.as_slice().to_vec(),
            Memory::Empty | Memory::Dropped | Memory::Accelerator { .. } => self.make_weights(),
        };
        self.memory = self.on_accelerator(weights);
        Ok(())
    }

    fn release(mut self) -> Result<(), String> {
        self.memory = Memory::Empty;
        for ledger in &self.ledgers {
            self.record(ledger, Change::Release, 0, false)?;
        }
        if let Some(holder) = self.holder.take() {
            holder.retire();
        }
        Ok(())
    }
}
