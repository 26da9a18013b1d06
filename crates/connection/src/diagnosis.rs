//! What the texts of `ssh` and `sudo` mean. They are read with `LC_ALL=C`.

/// Why `ssh` did not reach a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SshReason {
    /// The name has no address.
    NameNotResolved,
    /// There is no way to the address.
    NoRoute,
    /// Nothing listens on the port.
    ConnectionRefused,
    /// Nothing answered in time.
    ConnectTimedOut,
    /// The host's key is not among those that are known.
    HostKeyUnknown,
    /// The host has another key than the one that is known, or a revoked one.
    HostKeyChanged,
    /// The host accepts none of the keys that were offered.
    PermissionDenied,
    /// The host gave up after too many keys.
    TooManyKeys,
    /// The key file does not exist, is not a key, or may be read by others.
    KeyFileUnusable,
    /// Both sides have no algorithm in common.
    NoCommonAlgorithm,
    /// The arguments or the configuration of ssh are wrong.
    WrongConfiguration,
    /// The command or host through which the host is reached failed.
    ProxyFailed,
    /// The host closed the connection before anybody logged in.
    ClosedByHost,
    /// The connection broke while it was used.
    ConnectionLost,
    /// The host refuses another session on the connection.
    SessionRefused,
    /// The login shell did not run the command.
    NoShell,
    /// ssh said something else.
    Other,
}

/// Why `sudo` did not run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SudoReason {
    /// There is no `sudo`.
    NotInstalled,
    /// It asks for a password, and none was given.
    PasswordRequired,
    /// It does not accept the password.
    WrongPassword,
    /// The user may not use sudo, or not for this.
    NotAllowed,
    /// It only works on a terminal.
    TerminalRequired,
    /// The password or the account has expired, or is locked.
    AccountExpired,
    /// There is no user to become.
    UnknownUser,
    /// The settings of sudo, or of the system around it, are wrong.
    Misconfigured,
    /// sudo said something else.
    Other,
}

/// Parts of texts and what they mean; the first that is contained decides. Those that say more come
/// first: a changed key ends in the words of an unknown one.
const SSH: &[(&str, SshReason)] = &[
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", SshReason::HostKeyChanged),
    ("REVOKED HOST KEY DETECTED", SshReason::HostKeyChanged),
    ("host key is known for", SshReason::HostKeyUnknown),
    ("Host key verification failed", SshReason::HostKeyUnknown),
    ("Could not resolve hostname", SshReason::NameNotResolved),
    ("Bad configuration option", SshReason::WrongConfiguration),
    ("Bad owner or permissions on", SshReason::WrongConfiguration),
    ("command-line line 0:", SshReason::WrongConfiguration),
    ("command-line: line 0:", SshReason::WrongConfiguration),
    ("terminating, ", SshReason::WrongConfiguration),
    ("unknown option -- ", SshReason::WrongConfiguration),
    ("Bad port ", SshReason::WrongConfiguration),
    ("too long for Unix domain socket", SshReason::WrongConfiguration),
    ("usage: ssh ", SshReason::WrongConfiguration),
    ("Unable to negotiate with", SshReason::NoCommonAlgorithm),
    ("no matching ", SshReason::NoCommonAlgorithm),
    ("UNPROTECTED PRIVATE KEY FILE", SshReason::KeyFileUnusable),
    ("not accessible: No such file or directory", SshReason::KeyFileUnusable),
    ("not accessible: Permission denied", SshReason::KeyFileUnusable),
    ("Load key ", SshReason::KeyFileUnusable),
    ("Too many authentication failures", SshReason::TooManyKeys),
    ("Permission denied (", SshReason::PermissionDenied),
    ("No supported authentication methods", SshReason::PermissionDenied),
    ("UNKNOWN port 65535", SshReason::ProxyFailed),
    ("stdio forwarding failed", SshReason::ProxyFailed),
    ("open failed: connect failed", SshReason::ProxyFailed),
    ("open failed: administratively prohibited", SshReason::ProxyFailed),
    ("No route to host", SshReason::NoRoute),
    ("Network is unreachable", SshReason::NoRoute),
    ("Connection refused", SshReason::ConnectionRefused),
    ("Timeout, server ", SshReason::ConnectionLost),
    ("timed out", SshReason::ConnectTimedOut),
    ("Session open refused by peer", SshReason::SessionRefused),
    ("session request failed", SshReason::SessionRefused),
    ("kex_exchange_identification", SshReason::ClosedByHost),
    ("ssh_exchange_identification", SshReason::ClosedByHost),
    ("banner exchange", SshReason::ClosedByHost),
    ("[preauth]", SshReason::ClosedByHost),
    ("closed by remote host", SshReason::ConnectionLost),
    ("Broken pipe", SshReason::ConnectionLost),
    ("Connection reset by", SshReason::ConnectionLost),
    ("read from master failed", SshReason::ConnectionLost),
    ("client_loop:", SshReason::ConnectionLost),
    ("Connection closed by", SshReason::ClosedByHost),
];

const SUDO: &[(&str, SudoReason)] = &[
    ("sudo: not found", SudoReason::NotInstalled),
    ("sudo: command not found", SudoReason::NotInstalled),
    ("you must have a tty", SudoReason::TerminalRequired),
    ("not in the sudoers file", SudoReason::NotAllowed),
    ("is not allowed to execute", SudoReason::NotAllowed),
    ("is not allowed to run sudo", SudoReason::NotAllowed),
    ("may not run sudo", SudoReason::NotAllowed),
    ("not allowed to use sudo", SudoReason::NotAllowed),
    ("assword expired", SudoReason::AccountExpired),
    ("assword is expired", SudoReason::AccountExpired),
    ("assword has expired", SudoReason::AccountExpired),
    ("ccount has expired", SudoReason::AccountExpired),
    ("Account expired", SudoReason::AccountExpired),
    ("ccount validation failure", SudoReason::AccountExpired),
    ("change your password immediately", SudoReason::AccountExpired),
    ("unknown user", SudoReason::UnknownUser),
    ("Sorry, try again", SudoReason::WrongPassword),
    ("incorrect password attempt", SudoReason::WrongPassword),
    ("a password is required", SudoReason::PasswordRequired),
    ("no password was provided", SudoReason::PasswordRequired),
    ("a terminal is required", SudoReason::PasswordRequired),
    ("effective uid is not 0", SudoReason::Misconfigured),
    ("no new privileges", SudoReason::Misconfigured),
    ("must be owned by uid 0", SudoReason::Misconfigured),
    ("is owned by uid ", SudoReason::Misconfigured),
    ("is world writable", SudoReason::Misconfigured),
    ("no valid sudoers sources", SudoReason::Misconfigured),
    ("syntax error", SudoReason::Misconfigured),
    ("parse error in", SudoReason::Misconfigured),
    ("unable to stat /etc/sudoers", SudoReason::Misconfigured),
    ("unable to open /etc/sudoers", SudoReason::Misconfigured),
    ("unable to initialize PAM", SudoReason::Misconfigured),
];

/// Returns what the messages of `ssh` mean that ended with 255.
#[must_use]
pub fn ssh_reason(messages: &str) -> SshReason {
    let found = SSH.iter().find(|(part, _)| messages.contains(part));
    found.map_or(SshReason::Other, |(_, reason)| *reason)
}

/// Returns what the messages of `sudo` mean that did not run the command.
#[must_use]
pub fn sudo_reason(messages: &str) -> SudoReason {
    let found = SUDO.iter().find(|(part, _)| messages.contains(part));
    found.map_or(SudoReason::Other, |(_, reason)| *reason)
}

impl SshReason {
    /// Its name, for events and tests.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// What happened, in words.
    #[must_use]
    pub fn about(self) -> &'static str {
        self.row().1
    }

    /// What to do next.
    #[must_use]
    pub fn next_step(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::NameNotResolved => (
                "NameNotResolved",
                "the name of the host has no address",
                "correct the name, or set ansible_host to an address",
            ),
            Self::NoRoute => (
                "NoRoute",
                "there is no route to the host",
                "check that the host is on, its address, and the networks between",
            ),
            Self::ConnectionRefused => (
                "ConnectionRefused",
                "nothing listens on the port of ssh",
                "start sshd on the host, or set ansible_port to its port",
            ),
            Self::ConnectTimedOut => (
                "ConnectTimedOut",
                "the host did not answer in time",
                "check that the host is on, its address, and firewalls between",
            ),
            Self::HostKeyUnknown => (
                "HostKeyUnknown",
                "the key of the host is not known",
                "compare its fingerprint with the host's own (ssh-keygen -lf \
                 /etc/ssh/ssh_host_ed25519_key.pub), and connect once by hand to accept it; \
                 gantry_host_key: accept-new accepts the keys of new hosts",
            ),
            Self::HostKeyChanged => (
                "HostKeyChanged",
                "the key of the host is not the one that is known",
                "find out why: the host was installed again, or somebody is in between; \
                 then remove the old key with ssh-keygen -R HOST",
            ),
            Self::PermissionDenied => (
                "PermissionDenied",
                "the host accepts none of the keys that were offered",
                "check ansible_user and ansible_ssh_private_key_file, and that the public key is \
                 in ~/.ssh/authorized_keys on the host",
            ),
            Self::TooManyKeys => (
                "TooManyKeys",
                "the host gave up after too many keys",
                "name the key with ansible_ssh_private_key_file, so that only it is offered",
            ),
            Self::KeyFileUnusable => (
                "KeyFileUnusable",
                "the key file cannot be used",
                "correct ansible_ssh_private_key_file; the file must be a key, with mode 0600",
            ),
            Self::NoCommonAlgorithm => (
                "NoCommonAlgorithm",
                "ssh and the host have no algorithm in common",
                "upgrade the older side, or name an algorithm in ansible_ssh_common_args",
            ),
            Self::WrongConfiguration => (
                "WrongConfiguration",
                "ssh refuses its arguments or its configuration",
                "correct ansible_ssh_common_args, ansible_ssh_extra_args or ~/.ssh/config",
            ),
            Self::ProxyFailed => (
                "ProxyFailed",
                "the host or command in between failed",
                "check ProxyJump or ProxyCommand: connect to the host in between first",
            ),
            Self::ClosedByHost => (
                "ClosedByHost",
                "the host closed the connection before the login",
                "look at the log of sshd on the host; it may refuse many connections at once \
                 (MaxStartups), or this address",
            ),
            Self::ConnectionLost => (
                "ConnectionLost",
                "the connection was lost",
                "check the host and the network, and run the command again",
            ),
            Self::SessionRefused => (
                "SessionRefused",
                "the host refuses another session",
                "raise MaxSessions in the host's sshd_config",
            ),
            Self::NoShell => (
                "NoShell",
                "the login shell of the user did not run the command",
                "log in by hand and see what it says; the user needs a shell, and /bin/sh has to \
                 exist",
            ),
            Self::Other => {
                ("Unreachable", "ssh failed", "run the line above by hand, with -v for more")
            }
        }
    }
}

impl SudoReason {
    /// Its name, for events and tests.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// What happened, in words.
    #[must_use]
    pub fn about(self) -> &'static str {
        self.row().1
    }

    /// What to do next.
    #[must_use]
    pub fn next_step(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::NotInstalled => (
                "SudoNotInstalled",
                "there is no sudo on the host",
                "install it, or log in as root with ansible_user",
            ),
            Self::PasswordRequired => (
                "SudoPasswordRequired",
                "sudo asks for a password",
                "run the command again with -K, or with --become-password-file",
            ),
            Self::WrongPassword => (
                "SudoWrongPassword",
                "sudo does not accept the password",
                "give the password of the user who logs in, not root's",
            ),
            Self::NotAllowed => (
                "SudoNotAllowed",
                "the user may not do this with sudo",
                "let the user in on the host, for instance with: usermod -aG sudo USER",
            ),
            Self::TerminalRequired => (
                "SudoTerminalRequired",
                "sudo only works on a terminal on this host",
                "remove requiretty from its sudoers, for instance with: Defaults:USER !requiretty",
            ),
            Self::AccountExpired => (
                "SudoAccountExpired",
                "the password or the account of the user has expired",
                "log in by hand and change the password, or see: chage -l USER",
            ),
            Self::UnknownUser => (
                "SudoUnknownUser",
                "the host has no user of this name to become",
                "correct ansible_become_user",
            ),
            Self::Misconfigured => (
                "SudoMisconfigured",
                "sudo does not work on this host",
                "see what it says, and check its files with: visudo -c",
            ),
            Self::Other => ("SudoFailed", "sudo failed", "log in by hand and run: sudo true"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The texts of OpenSSH 8.4 to 9.9.
    #[test]
    fn pvs_4_every_text_of_ssh_has_a_reason() {
        use SshReason as R;
        let table = [
            ("ssh: Could not resolve hostname n1: Name or service not known", R::NameNotResolved),
            (
                "ssh: Could not resolve hostname n1: Temporary failure in name resolution",
                R::NameNotResolved,
            ),
            ("ssh: connect to host 10.0.0.9 port 22: No route to host", R::NoRoute),
            ("ssh: connect to host 10.0.0.9 port 22: Network is unreachable", R::NoRoute),
            ("ssh: connect to host 10.0.0.9 port 22: Connection refused", R::ConnectionRefused),
            ("ssh: connect to host 10.0.0.9 port 22: Connection timed out", R::ConnectTimedOut),
            ("Connection timed out during banner exchange", R::ConnectTimedOut),
            (
                "No ED25519 host key is known for 10.0.0.9 and you have requested strict \
                 checking.\r\nHost key verification failed.",
                R::HostKeyUnknown,
            ),
            ("Host key verification failed.", R::HostKeyUnknown),
            (
                "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n\
                 Host key for 10.0.0.9 has changed and you have requested strict checking.\n\
                 Host key verification failed.",
                R::HostKeyChanged,
            ),
            ("@       WARNING: REVOKED HOST KEY DETECTED!  @", R::HostKeyChanged),
            ("ops@10.0.0.9: Permission denied (publickey,password).", R::PermissionDenied),
            (
                "Received disconnect from 10.0.0.9 port 22:2: Too many authentication failures\n\
                 Disconnected from 10.0.0.9 port 22",
                R::TooManyKeys,
            ),
            (
                "Warning: Identity file /k not accessible: No such file or directory.\n\
                 ops@10.0.0.9: Permission denied (publickey).",
                R::KeyFileUnusable,
            ),
            (
                "Permissions 0644 for '/k' are too open.\n@ WARNING: UNPROTECTED PRIVATE KEY \
                 FILE! @\nops@10.0.0.9: Permission denied (publickey).",
                R::KeyFileUnusable,
            ),
            (
                "Load key \"/k\": error in libcrypto\nops@h: Permission denied (publickey).",
                R::KeyFileUnusable,
            ),
            (
                "Unable to negotiate with 10.0.0.9 port 22: no matching host key type found. \
                 Their offer: ssh-rsa",
                R::NoCommonAlgorithm,
            ),
            ("command-line: line 0: Bad configuration option: controlpat", R::WrongConfiguration),
            ("unknown option -- Q\nusage: ssh [-46AaCfGg]", R::WrongConfiguration),
            ("Bad owner or permissions on /home/a/.ssh/config", R::WrongConfiguration),
            ("unix_listener: path \"/a\" too long for Unix domain socket", R::WrongConfiguration),
            ("jump: command not found\nConnection closed by UNKNOWN port 65535", R::ProxyFailed),
            (
                "channel 0: open failed: connect failed: No route to host\n\
                 stdio forwarding failed\nConnection closed by UNKNOWN port 65535",
                R::ProxyFailed,
            ),
            ("kex_exchange_identification: read: Connection reset by peer", R::ClosedByHost),
            (
                "kex_exchange_identification: Connection closed by remote host\n\
                 Connection closed by 10.0.0.9 port 22",
                R::ClosedByHost,
            ),
            ("Connection closed by 10.0.0.9 port 22", R::ClosedByHost),
            ("Connection to 10.0.0.9 closed by remote host.", R::ConnectionLost),
            ("client_loop: send disconnect: Broken pipe", R::ConnectionLost),
            ("Timeout, server 10.0.0.9 not responding.", R::ConnectionLost),
            (
                "mux_client_request_session: read from master failed: Connection reset by peer",
                R::ConnectionLost,
            ),
            (
                "mux_client_request_session: session request failed: Session open refused by peer",
                R::SessionRefused,
            ),
            ("", R::Other),
            ("something new", R::Other),
        ];
        for (text, expected) in table {
            assert_eq!(ssh_reason(text), expected, "{text}");
        }
    }

    /// The texts of sudo 1.8.31 to 1.9.15.
    #[test]
    fn pvs_4_every_text_of_sudo_has_a_reason() {
        use SudoReason as R;
        let table = [
            ("/bin/sh: 1: exec: sudo: not found", R::NotInstalled),
            ("sh: exec: line 1: sudo: not found", R::NotInstalled),
            ("sudo: a password is required", R::PasswordRequired),
            (
                "sudo: a terminal is required to read the password; either use the -S option to \
                 read from standard input or configure an askpass helper",
                R::PasswordRequired,
            ),
            (
                "Sorry, try again.\nsudo: no password was provided\nsudo: 1 incorrect password \
              attempt",
                R::WrongPassword,
            ),
            ("ops is not in the sudoers file.", R::NotAllowed),
            ("ops is not in the sudoers file.  This incident will be reported.", R::NotAllowed),
            (
                "Sorry, user ops is not allowed to execute '/bin/sh -c true' as root on n1.",
                R::NotAllowed,
            ),
            ("Sorry, user ops may not run sudo on n1.", R::NotAllowed),
            ("sudo: sorry, you must have a tty to run sudo", R::TerminalRequired),
            (
                "sudo: Account or password is expired, reset your password and try again",
                R::AccountExpired,
            ),
            ("sudo: account validation failure, is your account locked?", R::AccountExpired),
            ("sudo: unknown user: nobody1", R::UnknownUser),
            ("sudo: unknown user nobody1\nsudo: error initializing audit plugin", R::UnknownUser),
            (
                "sudo: effective uid is not 0, is /usr/bin/sudo on a file system with the \
                 'nosuid' option set or an NFS file system without root privileges?",
                R::Misconfigured,
            ),
            (
                "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as \
                 root.",
                R::Misconfigured,
            ),
            ("sudo: /etc/sudoers is world writable", R::Misconfigured),
            ("/etc/sudoers:3:7: syntax error\n", R::Misconfigured),
            ("", R::Other),
        ];
        for (text, expected) in table {
            assert_eq!(sudo_reason(text), expected, "{text}");
        }
    }

    #[test]
    fn pvs_4_every_reason_has_words_of_its_own() {
        use SshReason as S;
        use SudoReason as D;
        let ssh = SSH.iter().map(|(_, it)| *it).chain([S::NoShell, S::Other]).map(SshReason::row);
        let sudo = SUDO.iter().map(|(_, it)| *it).chain([D::Other]).map(SudoReason::row);
        let rows: BTreeSet<_> = ssh.chain(sudo).collect();
        assert_eq!(rows.len(), 17 + 9);
        let names: BTreeSet<&str> = rows.iter().map(|row| row.0).collect();
        let abouts: BTreeSet<&str> = rows.iter().map(|row| row.1).collect();
        let steps: BTreeSet<&str> = rows.iter().map(|row| row.2).collect();
        assert_eq!([names.len(), abouts.len(), steps.len()], [rows.len(); 3]);
    }

    proptest! {
        #[test]
        fn any_text_has_a_reason(text in any::<String>(), row in 0..SSH.len()) {
            let _ = (ssh_reason(&text), sudo_reason(&text));
            let around = format!("{text}\n{}\n{text}", SSH[row].0);
            prop_assert_ne!(ssh_reason(&around), SshReason::Other);
        }
    }
}
