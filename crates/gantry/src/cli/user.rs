//! `gantry user`: people who may reach a server, each with a certificate of their own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use gantry_process::clock::Clock;
use gantry_serve::kubeconfig::{Names, kubeconfig};
use gantry_serve::pki::{MASTERS, Record, Register};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{End, Form, render};
use crate::config;
use crate::endpoint::Endpoint;
use crate::output::Output;

/// Add users of an API server and list them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry user add bob --group devs
  gantry user list")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Add(Add),
    List(List),
}

/// Make a certificate for a user and write it to a kubeconfig.
///
/// The server believes it at once, and until it expires: a certificate cannot be taken back. What the
/// user may do is said by roles and bindings; until there are any, it is next to nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry user add bob --group devs --group ops
  gantry user add ci --expires 12h --kubeconfig ci.kubeconfig
  kubectl create clusterrolebinding bob --clusterrole view --user bob")]
struct Add {
    /// The name, as roles are bound to it.
    name: String,

    /// A group the user is in; may be repeated.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,

    /// How long the certificate is good: a number and s, m, h or d.
    #[arg(long, value_name = "DURATION", default_value = "365d", value_parser = duration)]
    expires: Duration,

    /// The file to write; by default NAME.kubeconfig in the current directory.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,

    /// Where the server is reached; by default where it last listened.
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    #[command(flatten)]
    place: Place,
}

/// List the users certificates were made for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry user list
  gantry user list -o json")]
struct List {
    /// The form of the output.
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: ListForm,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct Place {
    /// Where the server keeps objects and keys, as `gantry apiserver` has it.
    #[arg(long, value_name = "DIR", env = "GANTRY_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

impl Place {
    fn directory(&self) -> anyhow::Result<PathBuf> {
        config::data_dir(self.data_dir.as_deref())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListForm {
    /// A line for each.
    Table,
    /// The same with what requests show of a certificate.
    Wide,
    /// A YAML document.
    Yaml,
    /// A JSON document.
    Json,
}

/// The longest life of a certificate: that of the authority.
const LONGEST: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// Names that the server gives out itself. A certificate for one would pass for what it is not, and
/// that of a service account would outlive the account.
const RESERVED: [&str; 4] =
    ["system:anonymous", "system:authenticated", "system:unauthenticated", "system:serviceaccount"];

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<End> {
    let now = Clock::system().now();
    match &arguments.command {
        Command::Add(arguments) => add(arguments, now, output),
        Command::List(arguments) => list(arguments, now, output),
    }
}

fn add(arguments: &Add, now: Timestamp, output: &mut Output) -> anyhow::Result<End> {
    let Add { name, groups, expires, kubeconfig: file, force, server, place } = arguments;
    check_name("user", name)?;
    for group in groups {
        check_name("group", group)?;
    }
    let directory = place.directory()?;
    let file = file.clone().unwrap_or_else(|| default_file(name));
    if file.symlink_metadata().is_ok() && !force {
        anyhow::bail!(
            "{} is there already; name another --kubeconfig, or say --force",
            file.display()
        );
    }
    let mut register = Register::open(&directory.join("pki"), now)?;
    let endpoint = Endpoint::read(&directory)?;
    let url = server.clone().or_else(|| endpoint.as_ref().map(|it| it.server.clone()));
    let url =
        url.context("it is not known where the server listens; say --server https://HOST:PORT")?;
    let authority = endpoint.map_or_else(|| register.authority().to_owned(), |it| it.authority);
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let (identity, record) = register.issue(name, &groups, *expires, now)?;
    let names = Names { user: name, ..Names::default() };
    let text = kubeconfig(&url, &authority, &identity, &names);
    gantry_serve::files::write_private(&file, text.as_bytes())
        .with_context(|| format!("could not write the kubeconfig {}", file.display()))?;
    let until = seconds(record.expires);
    output.result(format_args!("{name} may reach {url} until {until} with {}", file.display()))?;
    if groups.contains(&MASTERS) {
        output.warning(format_args!(
            "members of {MASTERS} may do everything, whatever roles say; this cannot be taken back \
             before {until}"
        ));
    }
    Ok(End::Done)
}

/// Whether a certificate may be made out to this name.
fn check_name(what: &str, name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(!name.trim().is_empty(), "the name of a {what} is empty");
    anyhow::ensure!(
        !name.chars().any(char::is_control),
        "the name of a {what} is one line of text"
    );
    let reserved = RESERVED.iter().any(|it| name.starts_with(it));
    anyhow::ensure!(
        !reserved,
        "{what} {name:?}: the server gives such names to callers itself; choose another name, or \
         use `kubectl create token` for a service account"
    );
    Ok(())
}

/// A file in the current directory, whatever the name is made of.
fn default_file(name: &str) -> PathBuf {
    let plain = |it: char| if it.is_alphanumeric() || "-_@.".contains(it) { it } else { '-' };
    let name: String = name.chars().map(plain).take(100).collect();
    Path::new(".").join(format!("{}.kubeconfig", name.trim_start_matches('.')))
}

fn list(arguments: &List, now: Timestamp, output: &mut Output) -> anyhow::Result<End> {
    let register = Register::open(&arguments.place.directory()?.join("pki"), now)?;
    let users = register.users();
    let form = match arguments.output {
        ListForm::Table => return table(users, now, false, output),
        ListForm::Wide => return table(users, now, true, output),
        ListForm::Yaml => Form::Yaml,
        ListForm::Json => Form::Json,
    };
    let users: Vec<Value> = users.iter().map(|user| described(user, now)).collect();
    output.result_text(&render(&json!({ "users": users }), form)?)?;
    Ok(End::Done)
}

fn described(user: &Record, now: Timestamp) -> Value {
    let Record { name, groups, issued, expires, sha256_hex } = user;
    json!({
        "name": name, "groups": groups, "issued": seconds(*issued), "expires": seconds(*expires),
        "expired": *expires < now, "credentialId": format!("X509SHA256={sha256_hex}"),
    })
}

fn table(users: &[Record], now: Timestamp, wide: bool, output: &mut Output) -> anyhow::Result<End> {
    if users.is_empty() {
        output.note("no users; add one with `gantry user add NAME`");
        return Ok(End::Done);
    }
    let mut rows = vec![["NAME", "GROUPS", "EXPIRES", "ISSUED", "CREDENTIAL"].map(str::to_owned)];
    for Record { name, groups, issued, expires, sha256_hex } in users {
        let ended = if *expires < now { " (expired)" } else { "" };
        let groups = if groups.is_empty() { "<none>".to_owned() } else { groups.join(",") };
        let credential = format!("X509SHA256={sha256_hex}");
        let expires = format!("{}{ended}", seconds(*expires));
        rows.push([name.clone(), groups, expires, seconds(*issued), credential]);
    }
    let columns = if wide { 5 } else { 3 };
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        output.result(cells.collect::<Vec<_>>().join("   ").trim_end())?;
    }
    Ok(End::Done)
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A length of time: a number and a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let wanted = "write a number and s, m, h or d, such as 12h or 30d";
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(wanted.to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| wanted.to_owned())?;
    let length = number.checked_mul(unit).map(Duration::from_secs);
    match length.filter(|it| *it <= LONGEST) {
        None => Err("no certificate is good for more than 3650d".to_owned()),
        Some(Duration::ZERO) => Err("a certificate must be good for some time".to_owned()),
        Some(length) => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time() {
        let table = [
            ("12h", Some(43_200)),
            ("30d", Some(2_592_000)),
            ("90s", Some(90)),
            ("5m", Some(300)),
            ("3650d", Some(315_360_000)),
            ("3651d", None),
            ("99999999999999999999d", None),
            ("0h", None),
            ("h", None),
            ("12", None),
            ("1h30m", None),
            ("-1h", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(duration(text).ok().map(|it| it.as_secs()), expected, "{text}");
        }
    }

    #[test]
    fn files_are_named_after_users() {
        for (name, expected) in [
            ("bob", "./bob.kubeconfig"),
            ("bob@example.com", "./bob@example.com.kubeconfig"),
            ("../../etc/x y", "./-..-etc-x-y.kubeconfig"),
            ("system:node:n", "./system-node-n.kubeconfig"),
        ] {
            assert_eq!(default_file(name), Path::new(expected));
        }
    }

    #[test]
    fn names_of_the_server_are_not_given_away() {
        for name in ["bob", "system:masters", "system:node:n", "system:kube-scheduler"] {
            assert!(check_name("user", name).is_ok(), "{name}");
        }
        for name in [
            "",
            " ",
            "a\nb",
            "system:anonymous",
            "system:serviceaccount:a:b",
            "system:serviceaccounts",
            "system:authenticated",
        ] {
            assert!(check_name("group", name).is_err(), "{name}");
        }
    }
}
