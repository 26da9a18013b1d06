//! Variables that say how a host is reached, with the names of the original.

use super::Shape;
use crate::finding::Finding;
use crate::inventory::Inventory;
use crate::tree::Assignment;
use crate::value::Value;

/// A variable of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionVariable {
    /// The name.
    pub name: &'static str,
    /// Which values it has.
    pub shape: Shape,
    /// The default, in words.
    pub default: &'static str,
    /// What it decides.
    pub about: &'static str,
}

const fn row(
    name: &'static str,
    shape: Shape,
    default: &'static str,
    about: &'static str,
) -> ConnectionVariable {
    ConnectionVariable { name, shape, default, about }
}

const PORT: Shape = Shape::Integer(1, 65_535);
const METHOD: Shape = Shape::OneOf(&["sudo"]);
const CONNECTION: Shape = Shape::OneOf(&["ssh", "local", "smart"]);

/// All of them.
pub const CONNECTION_VARIABLES: &[ConnectionVariable] = &[
    row("ansible_host", Shape::Address, "the name of the host", "The address to connect to."),
    row("ansible_port", PORT, "22", "The port of ssh."),
    row("ansible_ssh_port", PORT, "22", "Another name of `ansible_port`."),
    row("ansible_user", Shape::User, "what ssh is configured to", "The user to log in as."),
    row(
        "ansible_ssh_user",
        Shape::User,
        "what ssh is configured to",
        "Another name of `ansible_user`.",
    ),
    row(
        "ansible_ssh_private_key_file",
        Shape::LocalPath,
        "what ssh chooses",
        "The only key that is offered.",
    ),
    row("ansible_connection", CONNECTION, "ssh; local for `localhost`", "How to reach the host."),
    row("ansible_become", Shape::Bool, "when a step needs root", "Whether to use sudo."),
    row("ansible_become_user", Shape::User, "root", "The user to become."),
    row("ansible_become_method", METHOD, "sudo", "How to become root."),
    row("ansible_become_password", Shape::Text, "–", "The password of sudo: a vault or `@FILE`."),
    row("ansible_become_pass", Shape::Text, "–", "Another name of `ansible_become_password`."),
    row("ansible_ssh_common_args", Shape::Text, "–", "More arguments of ssh."),
    row("ansible_ssh_extra_args", Shape::Text, "–", "More arguments of ssh."),
];

/// Variables of the original that nothing here needs.
const IGNORED: [&str; 11] = [
    "ansible_python_interpreter",
    "ansible_shell_type",
    "ansible_shell_executable",
    "ansible_ssh_executable",
    "ansible_ssh_pipelining",
    "ansible_ssh_retries",
    "ansible_become_exe",
    "ansible_become_flags",
    // These have a warning of their own.
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
];

pub(super) fn find(name: &str) -> Option<&'static ConnectionVariable> {
    CONNECTION_VARIABLES.iter().find(|variable| variable.name == name)
}

pub(super) fn is_ignored(name: &str) -> bool {
    IGNORED.contains(&name)
}

/// Checks that a password does not stand in a file that others can read.
pub(super) fn check_secret(
    inventory: &Inventory,
    assignment: &Assignment,
    into: &mut Vec<Finding>,
) {
    let Assignment { name, at, value } = assignment;
    let width = name.chars().count();
    match name.as_str() {
        "ansible_become_password" | "ansible_become_pass" => {}
        "ansible_password" | "ansible_ssh_pass" | "ansible_ssh_password" => {
            let message = format!("`{name}` has no effect");
            let remedy = "log in with a key; ansible_become_password is for sudo";
            into.push(Finding::warning(*at, width, message, remedy).without_line());
            return;
        }
        _ => return,
    }
    let is_literal = match &value.value {
        // `{{ lookup('env', …) }}` would put it into the environment, and is a literal too.
        Value::Text(text) => !text.starts_with('@'),
        Value::Number(_) => true,
        Value::Null | Value::Bool(_) | Value::Vault(_) | Value::List(_) | Value::Map(_) => false,
    };
    if !is_literal {
        return;
    }
    let message = format!("`{name}` stands here in plain text");
    let remedy = "expected `!vault`, or `@FILE` with the password in a file";
    into.push(if inventory.files.is_private(value.at.file) {
        Finding::warning(*at, width, message, remedy).without_line()
    } else {
        Finding::error(*at, width, message, remedy).without_line()
    });
}
