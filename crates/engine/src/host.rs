//! What a program has around it: variables, an address, output, the API server.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::confinement::{self, CONFINEMENT_VARIABLE};
use crate::kubernetes::KubernetesApi;
use crate::ledger;

/// The variable with the only address of a program's pod, in simulated pods.
pub const ADDRESS_VARIABLE: &str = "GANTRY_POD_ADDRESS";
/// The variable with the directory of the ledgers of a node's accelerators.
pub const LEDGERS_VARIABLE: &str = "GANTRY_ACCELERATOR_LEDGERS";
/// The variable with the file of the token that callers must present.
pub const TOKEN_VARIABLE: &str = "GANTRY_TOKEN_FILE";
/// The largest token file.
const MAX_TOKEN_BYTES: u64 = 4096;

/// Writes to the output of a container.
pub type OutputWriter = Arc<dyn Fn(&[u8]) -> io::Result<()> + Send + Sync>;

/// The surroundings of a program. Clones share them.
#[derive(Clone)]
pub struct Host {
    /// Its variables.
    pub environment: BTreeMap<String, String>,
    /// The binary that has the programs, by which children are started.
    pub executable: PathBuf,
    /// Writes to the output of its container, as it is.
    pub output: OutputWriter,
    /// Called when it becomes ready or unready, where there is no probe.
    pub set_ready: Arc<dyn Fn(bool) + Send + Sync>,
    /// The API server, if it can be reached.
    pub kubernetes: Option<Arc<dyn KubernetesApi>>,
    /// The pod of the program, as far as it is known without its arguments.
    pub pod: PodFacts,
}

/// What is known about a program's pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its UID.
    pub uid: Option<String>,
    /// Its node.
    pub node: Option<String>,
    /// The accelerators that its claims were given; `None` if it has no claims.
    pub claimed: Option<Vec<String>>,
    /// How many accelerators its container asks for as an extended resource.
    pub requested: Option<usize>,
}

impl Host {
    /// A program with these variables, which are also what is known about its pod: `NAMESPACE`,
    /// `POD_NAME`, `POD_UID`, `NODE_NAME`.
    #[must_use]
    pub fn new(environment: BTreeMap<String, String>, executable: PathBuf) -> Self {
        let named = |name: &str| environment.get(name).filter(|it| !it.is_empty()).cloned();
        let pod = PodFacts {
            namespace: named("NAMESPACE"),
            name: named("POD_NAME"),
            uid: named("POD_UID"),
            node: named("NODE_NAME"),
            ..PodFacts::default()
        };
        Self {
            executable,
            output: Arc::new(|bytes| {
                use io::Write as _;
                let mut output = io::stdout().lock();
                output.write_all(bytes)?;
                output.flush()
            }),
            set_ready: Arc::new(|_| {}),
            kubernetes: None,
            pod,
            environment,
        }
    }

    /// Returns a variable that is set and not empty.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|it| !it.is_empty())
    }

    /// Returns the only address of the pod, where several pods share the addresses of a machine.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.variable(ADDRESS_VARIABLE)?.parse().ok()
    }

    /// Returns the directory that all programs of the cluster share, if this is one of a simulated
    /// pod, which is confined.
    #[must_use]
    pub fn confinement(&self) -> Option<PathBuf> {
        self.variable(CONFINEMENT_VARIABLE).map(PathBuf::from)
    }

    /// Returns the capacity of an accelerator that nobody has described.
    #[must_use]
    pub fn default_capacity(&self) -> u64 {
        match self.confinement() {
            Some(_) => confinement::CAPACITY,
            None => ledger::DEFAULT_CAPACITY,
        }
    }

    /// Returns the address to listen on. "All addresses" means those of the pod, and a program that
    /// is confined has no other.
    #[must_use]
    pub fn listen_address(&self, wanted: IpAddr) -> IpAddr {
        match self.address() {
            Some(own) if wanted.is_unspecified() || self.confinement().is_some() => own,
            Some(_) | None => wanted,
        }
    }

    /// Returns where a program of the same pod is reached.
    #[must_use]
    pub fn local_address(&self) -> IpAddr {
        self.address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Returns the directory of the node's ledgers, if memory of accelerators is accounted.
    #[must_use]
    pub fn ledgers(&self) -> Option<PathBuf> {
        self.variable(LEDGERS_VARIABLE).map(PathBuf::from)
    }

    /// Writes a line to the output of the container.
    pub fn log(&self, line: &str) {
        // Where the output is closed nobody reads it.
        let _ = (self.output)(format!("{line}\n").as_bytes());
    }

    /// Reads the token that callers must present: from the file of an option, or of the variable.
    ///
    /// # Errors
    /// The file cannot be read, or is empty.
    pub fn token(&self, file: Option<&PathBuf>) -> io::Result<Option<String>> {
        use io::Read as _;
        let variable = || self.variable(TOKEN_VARIABLE).map(PathBuf::from);
        let Some(file) = file.cloned().or_else(variable) else { return Ok(None) };
        let mut text = String::new();
        let read = std::fs::File::open(&file)
            .and_then(|it| it.take(MAX_TOKEN_BYTES).read_to_string(&mut text));
        let named = |error: io::Error| {
            let message = format!("could not read the token in {}: {error}", file.display());
            io::Error::new(error.kind(), message)
        };
        read.map_err(named)?;
        match text.trim() {
            "" => Err(named(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"))),
            token => Ok(Some(token.to_owned())),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Host").field("pod", &self.pod).finish_non_exhaustive()
    }
}
