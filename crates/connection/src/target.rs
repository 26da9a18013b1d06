//! Which host a connection leads to, and the words with which `ssh` is started.

use std::path::Path;
use std::time::Duration;

use crate::secret::Secret;
use crate::shell;

/// A host, and how it is reached.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name, for messages.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
}

/// How a host is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    /// It is this machine.
    Local,
    /// Through the system's `ssh`.
    Ssh(SshTarget),
}

/// The options of `ssh` for a host; what is absent here is what the user configured for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshTarget {
    /// The address, or a name that ssh resolves.
    pub host: String,
    /// The port.
    pub port: Option<u16>,
    /// The user to log in as.
    pub user: Option<String>,
    /// The only key that is offered.
    pub key_file: Option<String>,
    /// More arguments. They win over those of this crate that do not concern the shared connection.
    pub arguments: Vec<String>,
    /// Which host keys are accepted.
    pub host_key: HostKeyPolicy,
    /// How long to wait for the host to accept a connection.
    pub connect_timeout: Duration,
}

/// Which host keys are accepted. A key that changed never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostKeyPolicy {
    /// Only known ones.
    #[default]
    Strict,
    /// The first one of a new host, too.
    AcceptNew,
}

/// The user that commands run as, by way of `sudo`.
#[derive(Clone, Debug)]
pub struct Become {
    /// The user.
    pub user: String,
    /// The password of the user who logs in. Without it, none may be asked for.
    pub password: Option<Secret>,
}

/// A host, port or user that cannot be given to a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} begins with -, is empty, or has a blank in it; correct it")]
pub struct InvalidTarget {
    /// Which one.
    pub what: &'static str,
    /// Its value.
    pub value: String,
}

/// How often a connection without traffic is checked, in seconds, and how many checks may fail.
const ALIVE_INTERVAL: u8 = 15;
const ALIVE_COUNT: u8 = 3;

/// How long, in seconds, a shared connection stays open that nobody closes: also the longest time
/// for which one outlives a process that was killed.
const PERSIST: u8 = 120;

impl SshTarget {
    /// Checks what becomes an argument.
    ///
    /// # Errors
    /// A value could be read as an option, or as several words.
    pub fn check(&self) -> Result<(), InvalidTarget> {
        let user = self.user.as_deref().map(|user| ("the user", user));
        for (what, value) in [("the host", self.host.as_str())].into_iter().chain(user) {
            let is_odd = |c: char| c.is_whitespace() || c.is_control();
            if value.is_empty() || value.starts_with('-') || value.contains(is_odd) {
                return Err(InvalidTarget { what, value: value.to_owned() });
            }
        }
        Ok(())
    }

    /// The arguments of `ssh` for a command over the shared connection at a path.
    #[must_use]
    pub fn arguments(&self, control_path: &Path, command: &str) -> Vec<String> {
        let mut words = shared_connection(control_path);
        words.extend(options([
            ("ControlMaster", "auto".to_owned()),
            ("ControlPersist", PERSIST.to_string()),
            ("BatchMode", "yes".to_owned()),
        ]));
        words.extend(self.destination_arguments());
        words.extend(["--".to_owned(), self.destination(), command.to_owned()]);
        words
    }

    /// The arguments of `ssh` that end the shared connection at a path.
    #[must_use]
    pub fn exit_arguments(&self, control_path: &Path) -> Vec<String> {
        let mut words = shared_connection(control_path);
        words.extend(["-O".to_owned(), "exit".to_owned()]);
        words.extend(["--".to_owned(), self.destination()]);
        words
    }

    /// The line that shows a user what happens: it connects without the shared connection, and
    /// fails with the same words.
    #[must_use]
    pub fn line(&self) -> String {
        let mut words = vec!["ssh".to_owned()];
        words.extend(options([("BatchMode", "yes".to_owned())]));
        words.extend(self.destination_arguments());
        words.extend(["--".to_owned(), self.destination(), "true".to_owned()]);
        shell::quote_words(&words)
    }

    /// User and host as ssh takes them.
    #[must_use]
    pub fn destination(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        }
    }

    /// What decides whether the host is reached. Of an option that is given twice, ssh takes the
    /// first, so those of the user come before those of this crate.
    fn destination_arguments(&self) -> Vec<String> {
        let mut words = self.arguments.clone();
        let strict = match self.host_key {
            HostKeyPolicy::Strict => "yes",
            HostKeyPolicy::AcceptNew => "accept-new",
        };
        words.extend(options([
            ("ConnectTimeout", self.connect_timeout.as_secs().max(1).to_string()),
            ("ServerAliveInterval", ALIVE_INTERVAL.to_string()),
            ("ServerAliveCountMax", ALIVE_COUNT.to_string()),
            ("StrictHostKeyChecking", strict.to_owned()),
        ]));
        if let Some(port) = self.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(file) = &self.key_file {
            words.extend(["-i".to_owned(), file.clone()]);
            words.extend(options([("IdentitiesOnly", "yes".to_owned())]));
        }
        words
    }
}

fn shared_connection(control_path: &Path) -> Vec<String> {
    // ssh replaces tokens in the path.
    let path = control_path.display().to_string().replace('%', "%%");
    options([("ControlPath", path)])
}

fn options<const COUNT: usize>(options: [(&str, String); COUNT]) -> Vec<String> {
    let words = options.into_iter().map(|(name, value)| [format!("-o{name}={value}")]);
    words.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> SshTarget {
        SshTarget {
            host: "10.0.0.1".to_owned(),
            connect_timeout: Duration::from_secs(10),
            ..SshTarget::default()
        }
    }

    fn full() -> SshTarget {
        SshTarget {
            port: Some(2222),
            user: Some("ops".to_owned()),
            key_file: Some("/home/a b/key".to_owned()),
            arguments: vec!["-o".to_owned(), "ProxyCommand=ssh -W %h:%p jump".to_owned()],
            host_key: HostKeyPolicy::AcceptNew,
            ..target()
        }
    }

    #[test]
    fn pvs_4_the_words_of_ssh() {
        let path = Path::new("/run/user/0/gantry-1/5%");
        let common = "-oConnectTimeout=10 -oServerAliveInterval=15 -oServerAliveCountMax=3";
        let shared = "-oControlPath=/run/user/0/gantry-1/5%% -oControlMaster=auto \
                      -oControlPersist=120 -oBatchMode=yes";
        let words = target().arguments(path, "exec true").join(" ");
        let expected =
            format!("{shared} {common} -oStrictHostKeyChecking=yes -- 10.0.0.1 exec true");
        assert_eq!(words, expected);
        let words = full().arguments(path, "exec true").join("|");
        let proxy = "-o|ProxyCommand=ssh -W %h:%p jump";
        let expected = format!(
            "{}|{proxy}|{}|-oStrictHostKeyChecking=accept-new|-p|2222|-i|/home/a b/key|\
             -oIdentitiesOnly=yes|--|ops@10.0.0.1|exec true",
            shared.replace(' ', "|"),
            common.replace(' ', "|"),
        );
        assert_eq!(words, expected);
        let words = full().exit_arguments(path).join(" ");
        assert_eq!(words, "-oControlPath=/run/user/0/gantry-1/5%% -O exit -- ops@10.0.0.1");
    }

    #[test]
    fn prv_2_the_line_can_be_pasted() {
        let expected = "ssh -oBatchMode=yes -o 'ProxyCommand=ssh -W %h:%p jump' \
                        -oConnectTimeout=10 -oServerAliveInterval=15 -oServerAliveCountMax=3 \
                        -oStrictHostKeyChecking=accept-new -p 2222 -i '/home/a b/key' \
                        -oIdentitiesOnly=yes -- ops@10.0.0.1 true";
        assert_eq!(full().line(), expected);
    }

    #[test]
    fn values_that_are_no_single_word_are_refused() {
        let host = |host: &str| SshTarget { host: host.to_owned(), ..target() };
        let user = |user: &str| SshTarget { user: Some(user.to_owned()), ..target() };
        for wrong in [host("-oProxyCommand=x"), host(""), host("a b"), user("-l"), user("a\n")] {
            let error = wrong.check().unwrap_err();
            assert!(error.to_string().contains("correct it"), "{error}");
        }
        for right in [host("node-1"), host("fe80::1%eth0"), user("o-ps"), full()] {
            assert_eq!(right.check(), Ok(()));
        }
    }
}
