//! What programs may do in simulated pods.
//!
//! A simulated pod runs as the user who started the cluster, and everybody on the machine reaches
//! its ports. So the authors of pods and the callers of a launcher must not decide what runs: in a
//! simulated pod engines are Gantry's own, their variables are those of a list, no option names a
//! file or a program, and all of them together are bounded. They end with the cluster: see
//! [`Input::Tether`](gantry_process::children::Input::Tether).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::host::TOKEN_VARIABLE;
use crate::launcher::{ENGINE_COMMAND_VARIABLE, Mode};
use crate::programs::Command;

/// The variable that confines a program, with the directory that all programs of the cluster share.
pub const CONFINEMENT_VARIABLE: &str = "GANTRY_SIMULATED_POD";

/// The capacity of an accelerator of a simulated node, unless its ledger says otherwise: 64 MiB.
pub const CAPACITY: u64 = 64 << 20;
/// The most instances of a launcher.
pub(crate) const MAX_INSTANCES: usize = 16;
/// The largest log of an instance: 1 MiB.
pub(crate) const MAX_LOG_BYTES: u64 = 1 << 20;
/// The largest body of a request: 64 KiB.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 10;
/// The largest weights of an engine, and the largest cache: 64 MiB.
pub(crate) const MAX_ENGINE_BYTES: u64 = 64 << 20;
/// The most that fault `fill-log` writes: 4 MiB.
pub(crate) const MAX_FILL_BYTES: u64 = 4 << 20;
/// The most engines of a cluster.
const MAX_ENGINES: usize = 64;

/// The variables that are passed on, and the prefixes of others.
const PASSED: [&str; 3] =
    ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GANTRY_ENGINE_FAULTS"];
const PASSED_PREFIXES: [&str; 1] = ["VLLM_"];

/// Divides variables into those that are passed on and the names of the others.
#[must_use]
pub fn divide(variables: &BTreeMap<String, String>) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut passed, mut withheld) = (BTreeMap::new(), Vec::new());
    for (name, value) in variables {
        let has_prefix = PASSED_PREFIXES.iter().any(|it| name.starts_with(it));
        if has_prefix || PASSED.contains(&name.as_str()) {
            passed.insert(name.clone(), value.clone());
        } else {
            withheld.push(name.clone());
        }
    }
    (passed, withheld)
}

/// Checks what a container asks for.
///
/// # Errors
/// It names a file or a program. The error says which, and what to do.
pub fn check(command: &Command, variables: &BTreeMap<String, String>) -> Result<(), String> {
    let remedy = match command {
        Command::Launcher(_) => "launchers start Gantry's own engine there: remove it",
        Command::Requester(_) | Command::Notifier(_) | Command::Engine(_) => "remove it",
        Command::EngineCore(_) => return Err("engine-core is started by engines only".to_owned()),
        Command::VendorTool(_) => return Ok(()),
    };
    let refuse = |what: String| Err(format!("{what} is not possible in simulated pods, {remedy}"));
    let named = |name: &str| variables.get(name).filter(|it| !it.is_empty());
    for name in [TOKEN_VARIABLE, ENGINE_COMMAND_VARIABLE] {
        if let Some(value) = named(name) {
            return refuse(format!("the variable {name}={value:?}"));
        }
    }
    let token_file = match command {
        Command::Launcher(it) => &it.token_file,
        Command::Requester(it) => &it.token_file,
        Command::Notifier(it) => &it.token_file,
        Command::Engine(_) | Command::EngineCore(_) | Command::VendorTool(_) => &None,
    };
    if let Some(file) = token_file {
        return refuse(format!("--token-file {}", file.display()));
    }
    if let Command::Launcher(launcher) = command {
        if let Some(words) = &launcher.engine_command {
            return refuse(format!("--engine-command {words:?}"));
        }
        if launcher.mode == Mode::Zygote {
            return refuse("--mode zygote".to_owned());
        }
    }
    Ok(())
}

/// Whether an address is one of simulated pods: 127.0.0.0/12 belongs to the machine.
#[must_use]
pub(crate) fn is_pod_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address >= Ipv4Addr::new(127, 16, 0, 0) && address.is_loopback(),
        IpAddr::V6(_) => false,
    }
}

/// The right of an engine to run, which ends with its process.
#[derive(Debug)]
pub(crate) struct EngineSlot {
    _lock: File,
}

impl EngineSlot {
    /// Takes a slot of the cluster.
    pub(crate) fn take(directory: &Path) -> Result<Self, String> {
        let failed = |path: &Path, error: std::io::Error| {
            format!("could not use {}: {error}", path.display())
        };
        let slots: PathBuf = directory.join("slots");
        std::fs::create_dir_all(&slots).map_err(|error| failed(&slots, error))?;
        for number in 0..MAX_ENGINES {
            let path = slots.join(number.to_string());
            let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(|error| failed(&path, error))?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Self { _lock: file });
            }
        }
        Err(format!("{MAX_ENGINES} engines run on the simulated nodes already: delete some"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;

    #[test]
    fn only_variables_of_the_list_are_passed_on() {
        let table = [
            ("VLLM_SERVER_DEV_MODE", true),
            ("CUDA_VISIBLE_DEVICES", true),
            ("NVIDIA_VISIBLE_DEVICES", true),
            ("GANTRY_ENGINE_FAULTS", true),
            ("LD_PRELOAD", false),
            ("LD_LIBRARY_PATH", false),
            ("PATH", false),
            ("PYTHONPATH", false),
            ("GLIBC_TUNABLES", false),
            ("MALLOC_CONF", false),
            ("MIMALLOC_VERBOSE", false),
            ("GANTRY_ENGINE_COMMAND", false),
            ("GANTRY_ACCELERATOR_LEDGERS", false),
            ("GANTRY_SIMULATED_POD", false),
            ("GANTRY_POD_RUN", false),
            ("GANTRY_POD_ADDRESS", false),
            ("vllm_x", false),
            ("XVLLM_", false),
        ];
        for (name, expected) in table {
            let (passed, withheld) = divide(&BTreeMap::from([(name.into(), "v".into())]));
            assert_eq!(
                (passed.len(), withheld.len()),
                if expected { (1, 0) } else { (0, 1) },
                "{name}"
            );
        }
    }

    #[test]
    fn what_names_a_file_or_a_program_is_refused() {
        let table = [
            ("launcher --port 8001 --mock-gpus --mode exec", "", None),
            ("launcher.py --log-level debug", "PATH=/tmp", None),
            ("launcher --engine-command /tmp/x", "", Some("--engine-command \"/tmp/x\"")),
            ("launcher --mode=zygote", "", Some("--mode zygote")),
            ("launcher --token-file /etc/passwd", "", Some("--token-file /etc/passwd")),
            ("launcher", "GANTRY_ENGINE_COMMAND=/tmp/x", Some("GANTRY_ENGINE_COMMAND=\"/tmp/x\"")),
            ("requester", "GANTRY_TOKEN_FILE=/t", Some("GANTRY_TOKEN_FILE=\"/t\"")),
            ("requester --token-file /t", "", Some("--token-file /t")),
            ("notifier --token-file /t", "", Some("--token-file /t")),
            ("engine --model m --config /etc/passwd", "", None),
            ("engine-core name", "", Some("is started by engines only")),
            ("nvidia-smi -L", "", None),
        ];
        for (line, variable, expected) in table {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let command = Command::parse(command_line::resolve(&words).unwrap()).unwrap();
            let pair = |it: (&str, &str)| (it.0.to_owned(), it.1.to_owned());
            let variables = variable.split_once('=').map(pair).into_iter().collect();
            match (check(&command, &variables), expected) {
                (Ok(()), None) => {}
                (Err(message), Some(expected)) => {
                    assert!(message.contains(expected), "{line}: {message}");
                }
                (result, _) => panic!("{line}: {result:?}"),
            }
        }
    }

    #[test]
    fn pods_have_addresses_that_nothing_else_has() {
        let table = [
            ("127.16.0.2", true),
            ("127.255.1.1", true),
            ("127.0.0.1", false),
            ("127.15.255.255", false),
            ("169.254.169.254", false),
            ("10.0.0.1", false),
            ("::1", false),
        ];
        for (address, expected) in table {
            assert_eq!(is_pod_address(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn slots_are_free_again_when_their_engine_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut slots: Vec<EngineSlot> =
            (0..MAX_ENGINES).map(|_| EngineSlot::take(folder.path()).unwrap()).collect();
        assert!(EngineSlot::take(folder.path()).unwrap_err().contains("already: delete some"));
        drop(slots.pop());
        assert_eq!(slots.len(), MAX_ENGINES - 1);
        EngineSlot::take(folder.path()).unwrap();
    }
}
