//! The options of the engine: those of the real one that are used, and its own.

use std::net::IpAddr;
use std::time::Duration;

use super::fault::{Fault, Faults, parse_time};
use super::model;
use crate::confinement;
use crate::host::Host;
use crate::ledger::{Ledger, LedgerError};

/// The variable that turns on the administration of sleep.
const DEVELOPER_MODE_VARIABLE: &str = "VLLM_SERVER_DEV_MODE";
/// The variable with faults, beside the option.
const FAULTS_VARIABLE: &str = "GANTRY_ENGINE_FAULTS";
/// The largest memory of weights or cache: 16 GiB.
const MAX_BYTES: u64 = 16 << 30;

const EXAMPLES: &str = "\
Examples:
  gantry engine --model tiny/a --port 8000
  VLLM_SERVER_DEV_MODE=1 gantry engine --model tiny/a --port 8000 --enable-sleep-mode
  gantry engine --model tiny/a --weight-bytes 67108864 --bytes-per-second 1000000000
  gantry engine --model tiny/a --fault refuse-wake=1,slow-sleep=500ms

Options of the real engine that mean nothing here are accepted and ignored.";

/// Serve a small model as a large one is served, with memory, sleep and faults.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The model. Its weights follow from its name.
    #[arg(long, default_value = "tiny/default")]
    pub model: String,
    /// The names in responses, separated by spaces or commas [default: the model].
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub served_model_name: Vec<String>,
    /// The port.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// The address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub host: IpAddr,
    /// The size of the weights, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    pub weight_bytes: u64,
    /// The size of the cache, in bytes, which is taken on each accelerator while it is awake.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub cache_bytes: u64,
    /// What stays taken of each accelerator while it sleeps, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10)]
    pub residue_bytes: u64,
    /// How fast weights are loaded, moved away and moved back; 0 takes no time.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub bytes_per_second: u64,
    /// What loading takes beside, like 500ms.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub load_time: Duration,
    /// What sleeping takes beside.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub sleep_time: Duration,
    /// What waking takes beside.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub wake_time: Duration,
    /// What one token takes.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub token_time: Duration,
    /// Listen at once, and answer `/health` with 200 only after this number of seconds.
    #[arg(long, value_name = "SECONDS")]
    pub startup_delay: Option<u64>,
    /// What goes wrong, like `refuse-wake=1,slow-sleep=2s` [default: $GANTRY_ENGINE_FAULTS].
    #[arg(long, value_name = "FAULTS")]
    pub fault: Vec<String>,
    /// Give memory back while it sleeps.
    #[arg(long)]
    pub enable_sleep_mode: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| "write a time like 2s or 50ms".to_owned())
}

/// The options that are known, and whether they take a value.
const KNOWN: [(&str, bool); 17] = [
    ("--model", true),
    ("--served-model-name", true),
    ("--port", true),
    ("--host", true),
    ("--weight-bytes", true),
    ("--cache-bytes", true),
    ("--residue-bytes", true),
    ("--bytes-per-second", true),
    ("--load-time", true),
    ("--sleep-time", true),
    ("--wake-time", true),
    ("--token-time", true),
    ("--startup-delay", true),
    ("--fault", true),
    ("--enable-sleep-mode", false),
    ("--help", false),
    ("-h", false),
];

/// Removes what is an option of the real engine only, and returns the options that are known. The
/// last of several counts, as with the real one.
#[must_use]
pub fn known_options(words: &[String]) -> Vec<String> {
    let mut known: Vec<(&str, Vec<String>)> = Vec::new();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let name = word.split('=').next().unwrap_or_default();
        let Some((name, takes_value)) = KNOWN.iter().find(|it| it.0 == name) else { continue };
        let mut option = vec![word.clone()];
        if *takes_value && !word.contains('=') {
            option.extend(rest.next().cloned());
        }
        while *name == "--served-model-name" && rest.peek().is_some_and(|it| !it.starts_with('-')) {
            option.extend(rest.next().cloned());
        }
        if *name != "--fault" {
            known.retain(|(other, _)| other != name);
        }
        known.push((name, option));
    }
    known.into_iter().flat_map(|(_, option)| option).collect()
}

/// The checked options.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) model: String,
    pub(super) names: Vec<String>,
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) weight_bytes: u64,
    pub(super) cache_bytes: u64,
    pub(super) residue_bytes: u64,
    pub(super) bytes_per_second: u64,
    pub(super) load_time: Duration,
    pub(super) sleep_time: Duration,
    pub(super) wake_time: Duration,
    pub(super) token_time: Duration,
    pub(super) startup_delay: Option<Duration>,
    pub(super) faults: Faults,
    pub(super) developer_mode: bool,
    pub(super) accelerators: Vec<String>,
    pub(super) instance: String,
}

impl Options {
    pub(super) fn resolve(arguments: Arguments, host: &Host) -> Result<Self, String> {
        let Arguments { weight_bytes, cache_bytes, residue_bytes, .. } = arguments;
        let is_confined = host.confinement().is_some();
        let most = if is_confined { confinement::MAX_ENGINE_BYTES } else { MAX_BYTES };
        for (option, bytes) in
            [("weight", weight_bytes), ("cache", cache_bytes), ("residue", residue_bytes)]
        {
            if bytes > most {
                return Err(format!("--{option}-bytes {bytes} is more than {most}: use less"));
            }
        }
        let own = [host.variable(FAULTS_VARIABLE).unwrap_or_default().to_owned()];
        let faults: Vec<String> = own.into_iter().chain(arguments.fault).collect();
        let faults = Faults::parse(&faults.join(","))?;
        let filled = faults.count(Fault::FillLog);
        if is_confined && filled > confinement::MAX_FILL_BYTES {
            return Err(format!(
                "fault fill-log={filled} is more than {} in simulated pods: use less",
                confinement::MAX_FILL_BYTES
            ));
        }
        let names = arguments.served_model_name.iter().flat_map(|it| it.split([',', ' ']));
        let names: Vec<String> = names.filter(|it| !it.is_empty()).map(str::to_owned).collect();
        Ok(Self {
            names: if names.is_empty() { vec![arguments.model.clone()] } else { names },
            model: arguments.model,
            address: host.listen_address(arguments.host),
            port: arguments.port,
            weight_bytes: weight_bytes.max(u64::try_from(model::MIN_WEIGHT_BYTES).unwrap_or(0)),
            cache_bytes,
            residue_bytes,
            bytes_per_second: arguments.bytes_per_second,
            load_time: arguments.load_time,
            sleep_time: arguments.sleep_time,
            wake_time: arguments.wake_time,
            token_time: arguments.token_time,
            startup_delay: arguments.startup_delay.map(Duration::from_secs),
            faults,
            developer_mode: host.variable(DEVELOPER_MODE_VARIABLE) == Some("1"),
            accelerators: accelerators(host)?,
            instance: host
                .variable(super::core_process::INSTANCE_VARIABLE)
                .unwrap_or_default()
                .to_owned(),
        })
    }

    /// How long moving the weights takes.
    pub(super) fn move_time(&self) -> Duration {
        match self.bytes_per_second {
            0 => Duration::ZERO,
            rate => {
                let millis = u128::from(self.weight_bytes) * 1000 / u128::from(rate);
                Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Returns the accelerators that are visible to an engine: `CUDA_VISIBLE_DEVICES` has places or
/// UUIDs; without it an engine takes the first.
fn accelerators(host: &Host) -> Result<Vec<String>, String> {
    let Some(directory) = host.ledgers() else { return Ok(Vec::new()) };
    let describe = |error: LedgerError| gantry_process::error_chain(&error);
    let mut all = Vec::new();
    for ledger in Ledger::all(&directory).map_err(describe)? {
        all.push(ledger.read().map_err(describe)?.accelerator);
    }
    let Some(list) = host.variable("CUDA_VISIBLE_DEVICES") else {
        return Ok(all.into_iter().take(1).map(|it| it.uuid).collect());
    };
    let names = list.split(',').map(str::trim).filter(|it| !it.is_empty());
    let find = |name: &str| {
        let found = all.iter().find(|it| it.uuid == name || it.index.to_string() == name);
        let found = found.map(|it| it.uuid.clone());
        found.ok_or_else(|| format!("CUDA_VISIBLE_DEVICES names {name}, which this node has not"))
    };
    names.map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_real_engine_are_ignored() {
        let table = [
            ("--model m --port 8", "--model m --port 8"),
            ("--max-model-len 5 --model=m --enforce-eager", "--model=m"),
            ("--port 1 --gpu-memory-utilization 0.9 --port 2", "--port 2"),
            ("--served-model-name a b --port 1", "--served-model-name a b --port 1"),
            (
                "--enable-sleep-mode stray --fault a --fault b",
                "--enable-sleep-mode --fault a --fault b",
            ),
            ("--model", "--model"),
            ("", ""),
        ];
        for (words, expected) in table {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert_eq!(known_options(&words).join(" "), expected);
        }
    }
}
