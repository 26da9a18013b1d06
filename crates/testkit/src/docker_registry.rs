//! Runs Debian's registry, the foreign one that our clients are tested with.

use std::io::{self, BufRead as _, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use crate::pki::{Authority, PkiError};

/// `ann` with the password `right`, as htpasswd writes it.
const HTPASSWD: &str = "ann:$2y$05$vIj4aQs.jNVVnh00tULvoezJPvNDxBBN9NL6SGmA9p3Gy5qdEqkMi\n";

/// Longer than a start takes on a busy machine; reached only by a test that fails.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an address of [`LocalAddress`] lives if nobody removes it: longer than any test.
const ADDRESS_LIFETIME: &str = "7200";

/// A registry on a port that it chooses itself. It ends with this value.
#[derive(Debug)]
pub struct DockerRegistry {
    child: Child,
    /// Host and port.
    pub address: String,
    _folder: tempfile::TempDir,
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        // It may have ended already; nothing can be done about any other failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl DockerRegistry {
    /// Starts the program `docker-registry` on an address of this machine; with an authority it has
    /// TLS and the user `ann` with the password `right`.
    ///
    /// # Errors
    /// It did not start.
    pub fn start(
        program: &Path,
        host: IpAddr,
        authority: Option<&Authority>,
    ) -> Result<Self, RegistryStartError> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut http = json!({"addr": format!("{host}:0"), "secret": "for tests"});
        let mut config = json!({
            "version": "0.1", "log": {"level": "info"},
            "storage": {"filesystem": {"rootdirectory": path("data")}, "delete": {"enabled": true}},
        });
        if let Some(authority) = authority {
            let names = [host.to_string(), "localhost".to_owned()];
            let issued = authority.server("registry", &names.each_ref().map(String::as_str))?;
            std::fs::write(path("crt"), issued.certificate)?;
            std::fs::write(path("key"), issued.key)?;
            std::fs::write(path("htpasswd"), HTPASSWD)?;
            http["tls"] = json!({"certificate": path("crt"), "key": path("key")});
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": path("htpasswd")}});
        }
        config["http"] = http;
        // JSON is YAML.
        std::fs::write(path("config.yml"), config.to_string())?;
        let mut child = Command::new(program)
            .args(["serve", &path("config.yml")])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().ok_or(RegistryStartError::NoAddress)?;
        // From here on it ends also when the start fails.
        let mut registry = Self { child, address: String::new(), _folder: folder };
        let (found, address) = mpsc::sync_channel(1);
        // Reads to the end, because a full pipe would stop the registry.
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some((_, after)) = line.split_once("listening on ") {
                    let end = |c: char| c == '"' || c == ',' || c.is_whitespace();
                    let address = after.split(end).next().unwrap_or_default();
                    let _ = found.try_send(address.to_owned());
                }
            }
        });
        let address = address.recv_timeout(START_TIMEOUT);
        registry.address = address.map_err(|_| RegistryStartError::NoAddress)?;
        Ok(registry)
    }
}

/// An address of this machine that is not of the network 127.0.0.0/8, on the loopback interface:
/// reachable from this machine alone, and by clients that refuse to call their own machine.
///
/// It is removed with this value. After a `kill -9` the kernel removes it: it has a lifetime.
#[derive(Debug)]
pub struct LocalAddress {
    ip: PathBuf,
    /// The address.
    pub host: IpAddr,
}

impl LocalAddress {
    /// Adds an address that is reserved for documentation.
    ///
    /// # Errors
    /// We are not root, or there is no program `ip`.
    pub fn add() -> io::Result<Self> {
        let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
        let mut paths = folders.iter().map(|folder| Path::new(folder).join("ip"));
        let ip = paths.find(|path| path.is_file()).ok_or_else(|| {
            io::Error::other("there is no program ip: run `apt-get install iproute2`")
        })?;
        let host = IpAddr::from([198, 51, 100, fastrand::u8(1..255)]);
        let address = Self { ip, host };
        let lifetime = ["valid_lft", ADDRESS_LIFETIME, "preferred_lft", ADDRESS_LIFETIME];
        let output = address.command("replace", &lifetime)?;
        match output.status.success() {
            true => Ok(address),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(io::Error::other(format!(
                    "cannot add {host} to the loopback interface: {said}"
                )))
            }
        }
    }

    fn command(&self, verb: &str, more: &[&str]) -> io::Result<std::process::Output> {
        let address = format!("{}/32", self.host);
        Command::new(&self.ip).args(["address", verb, &address, "dev", "lo"]).args(more).output()
    }
}

impl Drop for LocalAddress {
    fn drop(&mut self) {
        // The kernel removes it later if this fails.
        let _ = self.command("del", &[]);
    }
}

/// Why a registry did not start.
#[derive(Debug, thiserror::Error)]
pub enum RegistryStartError {
    /// Its files could not be written, or the program not be run.
    #[error("could not start a registry")]
    Io(#[from] io::Error),
    /// Its certificate could not be made.
    #[error("could not make a certificate for a registry")]
    Pki(#[from] PkiError),
    /// It did not say where it listens.
    #[error("the registry did not print an address in {} s", START_TIMEOUT.as_secs())]
    NoAddress,
}
