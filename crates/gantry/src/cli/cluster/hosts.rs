//! The hosts that a command is for, and how each of them is reached.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gantry_connection::{
    Become, Connection, ControlFolder, HostKeyPolicy, Secret, Settings, SshTarget, Target,
    Transport,
};
use gantry_inventory::{
    ALL, HostId, Inventory, Value, has_errors, read, select, split, split_words,
};
use gantry_process::clock::Clock;

use super::super::install::time;
use super::{inventory, inventory_files, password};
use crate::config;
use crate::output::Output;

/// How long a host may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which hosts, and how they are reached.
#[derive(Debug, clap::Args)]
pub(super) struct HostOptions {
    /// A file, a folder, or names of hosts with a comma; of several, later ones win.
    #[arg(short, long, value_name = "FILE|FOLDER|HOST,", required = true)]
    inventory: Vec<String>,

    /// Of the hosts only those that match a pattern, too.
    #[arg(short, long, value_name = "PATTERN|@FILE")]
    limit: Option<String>,

    /// Set variables: name=value, a map in YAML or JSON, or @FILE. They win over all others.
    #[arg(short, long, value_name = "VARIABLES")]
    extra_vars: Vec<String>,

    /// A file with the password of encrypted values.
    #[arg(long, value_name = "FILE")]
    vault_password_file: Vec<PathBuf>,

    /// How many hosts at once.
    #[arg(short, long, value_name = "COUNT", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(super) forks: u16,

    /// The user to log in as, where ansible_user is not set.
    #[arg(short, long)]
    user: Option<String>,

    /// The only key that is offered, where ansible_ssh_private_key_file is not set.
    #[arg(long, value_name = "FILE")]
    private_key: Option<String>,

    /// How to reach hosts, where ansible_connection is not set.
    #[arg(long, value_name = "ssh|local", value_parser = ["ssh", "local", "smart"])]
    connection: Option<String>,

    /// Run as root, with sudo.
    #[arg(short, long)]
    r#become: bool,

    /// The user to become, where ansible_become_user is not set.
    #[arg(long, value_name = "USER", default_value = "root")]
    become_user: String,

    /// Ask for the password of sudo.
    #[arg(short = 'K', long, conflicts_with = "become_password_file")]
    ask_become_pass: bool,

    /// A file with the password of sudo, which only its owner may read.
    #[arg(long, value_name = "FILE")]
    become_password_file: Option<PathBuf>,

    /// How long the command may take on a host.
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub(super) timeout: Option<Duration>,
}

/// One host that is reached.
#[derive(Debug)]
pub(super) struct ConnectedHost {
    pub(super) connection: Connection,
    pub(super) r#become: Option<Become>,
}

impl ConnectedHost {
    pub(super) fn name(&self) -> &str {
        &self.connection.target().name
    }
}

/// Prepares connections to the hosts that match a pattern; none if the inventory has errors, which
/// are printed. Nothing is started.
pub(super) fn hosts(
    options: &HostOptions,
    pattern: &str,
    output: &mut Output,
) -> anyhow::Result<Option<Vec<ConnectedHost>>> {
    let input = inventory_files::input(
        &options.inventory,
        &options.extra_vars,
        &options.vault_password_file,
        output,
    )?;
    // What is wrong with the clusters is no reason not to look at their hosts.
    let (inventory, findings) = read(&input);
    inventory::print_findings(&inventory, &findings, output);
    if has_errors(&findings) {
        return Ok(None);
    }
    let selected = selected(&inventory, pattern, options.limit.as_deref())?;
    let mut random = fastrand::Rng::new();
    let environment = config::environment();
    let control_folder = Arc::new(control_folder(&environment, &mut random)?);
    let settings = Settings { environment, control_folder, clock: Clock::system() };
    let password = match &options.become_password_file {
        Some(path) => Some(password::file(path)?),
        None if options.ask_become_pass => Some(password::ask("BECOME password: ")?),
        None => None,
    };
    let mut hosts = Vec::new();
    for id in selected {
        let variables = HostVariables { inventory: &inventory, id };
        let target = target(options, &variables)?;
        let random = fastrand::Rng::with_seed(random.u64(..));
        let connection = Connection::new(target, settings.clone(), random)?;
        let r#become = wanted_user(options, &variables, password.as_ref())?;
        hosts.push(ConnectedHost { connection, r#become });
    }
    Ok(Some(hosts))
}

/// The hosts that match both, in the order of the inventory.
fn selected(
    inventory: &Inventory,
    pattern: &str,
    limit: Option<&str>,
) -> anyhow::Result<Vec<HostId>> {
    let matching = |patterns: &[String]| -> anyhow::Result<HashSet<HostId>> {
        let selected = select(&inventory.tree, patterns);
        Ok(selected.map_err(|error| anyhow::anyhow!("{error}"))?.into_iter().collect())
    };
    let mut selected = matching(&split(pattern))?;
    if let Some(limit) = limit {
        let limited = matching(&inventory_files::limit(limit)?)?;
        selected.retain(|host| limited.contains(host));
    }
    if selected.is_empty() {
        let limit = limit.map(|limit| format!(" and --limit {limit}")).unwrap_or_default();
        bail!("no host matches {pattern}{limit}; see the names with: gantry cluster inventory");
    }
    let all = inventory.tree.members(ALL).into_iter();
    Ok(all.filter(|host| selected.contains(host)).collect())
}

/// Where sockets may be: in the user's own folder, if its path is short enough.
fn control_folder(
    environment: &BTreeMap<String, String>,
    random: &mut fastrand::Rng,
) -> anyhow::Result<ControlFolder> {
    let own = environment.get("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute());
    let parents: Vec<PathBuf> = own.into_iter().chain([PathBuf::from("/tmp")]).collect();
    Ok(ControlFolder::create(&parents, random)?)
}

/// The variables of one host.
struct HostVariables<'i> {
    inventory: &'i Inventory,
    id: HostId,
}

impl HostVariables<'_> {
    fn name(&self) -> &str {
        &self.inventory.tree.host(self.id).name
    }

    /// The text of the first of these variables that is set.
    fn text(&self, names: &[&str]) -> anyhow::Result<Option<String>> {
        for name in names {
            let value = self.inventory.value(self.id, name).map_err(|error| {
                anyhow::anyhow!("{}: {name}: {}; {}", self.name(), error.message, error.remedy)
            })?;
            match value.map(|node| node.value) {
                None | Some(Value::Null) => {}
                Some(Value::Text(text)) => return Ok(Some(text)),
                Some(Value::Number(number)) => return Ok(Some(number.to_string())),
                Some(Value::Bool(flag)) => return Ok(Some(flag.to_string())),
                Some(Value::Vault(vault)) => {
                    let secret = vault.secret().with_context(|| {
                        format!("{}: {name} is encrypted; give --vault-password-file", self.name())
                    })?;
                    return Ok(Some(secret.trim_end_matches('\n').to_owned()));
                }
                Some(Value::List(_) | Value::Map(_)) => {
                    bail!("{}: {name} must be text", self.name());
                }
            }
        }
        Ok(None)
    }

    fn flag(&self, name: &str) -> anyhow::Result<Option<bool>> {
        match self.text(&[name])?.as_deref() {
            None => Ok(None),
            Some("true" | "yes" | "on" | "1" | "True") => Ok(Some(true)),
            Some("false" | "no" | "off" | "0" | "False") => Ok(Some(false)),
            Some(other) => bail!("{}: {name} is {other}; write true or false", self.name()),
        }
    }
}

fn target(options: &HostOptions, variables: &HostVariables<'_>) -> anyhow::Result<Target> {
    let name = variables.name().to_owned();
    let kind = variables.text(&["ansible_connection"])?.or_else(|| options.connection.clone());
    let is_local = match kind.as_deref() {
        Some("local") => true,
        Some(_) => false,
        None => matches!(name.as_str(), "localhost" | "local"),
    };
    if is_local {
        return Ok(Target { name, transport: Transport::Local });
    }
    let port = variables.text(&["ansible_port", "ansible_ssh_port"])?;
    let port = port.map(|port| port.parse().with_context(|| format!("{name}: no port: {port}")));
    let mut arguments = Vec::new();
    for variable in ["ansible_ssh_common_args", "ansible_ssh_extra_args"] {
        let text = variables.text(&[variable])?.unwrap_or_default();
        let words = split_words(&text);
        arguments.extend(words.with_context(|| {
            format!("{name}: {variable} has a quote that is not closed: {text}")
        })?);
    }
    let host_key = match variables.text(&["gantry_host_key"])?.as_deref() {
        Some("accept-new") => HostKeyPolicy::AcceptNew,
        _ => HostKeyPolicy::Strict,
    };
    let user = variables.text(&["ansible_user", "ansible_ssh_user"])?;
    let key_file = variables.text(&["ansible_ssh_private_key_file"])?;
    let ssh = SshTarget {
        host: variables.text(&["ansible_host"])?.unwrap_or_else(|| name.clone()),
        port: port.transpose()?,
        user: user.or_else(|| options.user.clone()),
        key_file: key_file.or_else(|| options.private_key.clone()),
        arguments,
        host_key,
        connect_timeout: CONNECT_TIMEOUT,
    };
    Ok(Target { name, transport: Transport::Ssh(ssh) })
}

fn wanted_user(
    options: &HostOptions,
    variables: &HostVariables<'_>,
    password: Option<&Secret>,
) -> anyhow::Result<Option<Become>> {
    if !variables.flag("ansible_become")?.unwrap_or(options.r#become) {
        return Ok(None);
    }
    let user = variables.text(&["ansible_become_user"])?;
    let user = user.unwrap_or_else(|| options.become_user.clone());
    let own = variables.text(&["ansible_become_password", "ansible_become_pass"])?;
    let password = match own {
        None => password.cloned(),
        Some(text) => Some(match text.strip_prefix('@') {
            Some(path) => password::file(path.as_ref())?,
            None => Secret::new(text.into_bytes().into()),
        }),
    };
    Ok(Some(Become { user, password }))
}
