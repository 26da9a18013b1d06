//! `gantry user`: manages the users of a server, each with a client certificate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use gantry_columns::{TABLE_GAP, align};
use gantry_process::clock::Clock;
use gantry_serve::kubeconfig::{KubeconfigNames, kubeconfig};
use gantry_serve::pki::{IssuedCertificate, MASTERS, UserCertificates};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{CommandOutcome, OutputFormat, render};
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

/// Create a certificate for a user and write it to a kubeconfig.
///
/// The server accepts it at once, and until it expires: a certificate cannot be revoked. Roles and
/// bindings say what the user may do; without any, it is next to nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry user add bob --group devs --group ops
  gantry user add ci --expires 12h --kubeconfig ci.kubeconfig
  kubectl create clusterrolebinding bob --clusterrole view --user bob")]
struct Add {
    /// The name of the user, as role bindings name it.
    name: String,

    /// A group of the user; may be repeated.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,

    /// How long the certificate is valid: a number and s, m, h or d.
    #[arg(long, value_name = "DURATION", default_value = "365d", value_parser = duration)]
    expires: Duration,

    /// The file to write; by default NAME.kubeconfig in the current directory.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,

    /// The URL of the server; by default where it last listened.
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    #[command(flatten)]
    place: DataDirFlag,
}

/// List the users that certificates were created for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry user list
  gantry user list -o json")]
struct List {
    /// The output format.
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: UserListFormat,

    #[command(flatten)]
    place: DataDirFlag,
}

#[derive(Debug, clap::Args)]
struct DataDirFlag {
    /// The server's directory for objects and keys, as in `gantry apiserver`.
    #[arg(long, value_name = "DIR", env = "GANTRY_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

impl DataDirFlag {
    fn directory(&self) -> anyhow::Result<PathBuf> {
        config::data_dir(self.data_dir.as_deref())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UserListFormat {
    /// One line per user.
    Table,
    /// One line per user, with the fields of the certificate that requests show.
    Wide,
    /// A YAML document.
    Yaml,
    /// A JSON document.
    Json,
}

/// The longest lifetime of a certificate: that of the authority.
const MAX_CERTIFICATE_LIFETIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// Name prefixes that the server assigns itself. A certificate with one would impersonate a
/// built-in identity, and that of a service account would outlive the account.
const RESERVED: [&str; 4] =
    ["system:anonymous", "system:authenticated", "system:unauthenticated", "system:serviceaccount"];

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let now = Clock::system().now();
    match &arguments.command {
        Command::Add(arguments) => add(arguments, now, output),
        Command::List(arguments) => list(arguments, now, output),
    }
}

fn add(arguments: &Add, now: Timestamp, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let Add { name, groups, expires, kubeconfig: file, force, server, place } = arguments;
    check_name("user", name)?;
    for group in groups {
        check_name("group", group)?;
    }
    let directory = place.directory()?;
    let file = file.clone().unwrap_or_else(|| default_file(name));
    if file.symlink_metadata().is_ok() && !force {
        anyhow::bail!(
            "{} exists already; choose another --kubeconfig, or use --force",
            file.display()
        );
    }
    let mut register = UserCertificates::open(&directory.join("pki"), now)?;
    let endpoint = Endpoint::read(&directory)?;
    let url = server.clone().or_else(|| endpoint.as_ref().map(|it| it.server.clone()));
    let url =
        url.context("the address of the server is not known; use --server https://HOST:PORT")?;
    let authority =
        endpoint.map_or_else(|| register.ca_certificate().to_owned(), |it| it.authority);
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let (identity, record) = register.issue(name, &groups, *expires, now)?;
    let names = KubeconfigNames { user: name, ..KubeconfigNames::default() };
    let text = kubeconfig(&url, &authority, &identity, &names);
    gantry_serve::files::write_private(&file, text.as_bytes())
        .with_context(|| format!("could not write the kubeconfig {}", file.display()))?;
    let until = seconds(record.expires);
    output.result(format_args!("{name} may reach {url} until {until} with {}", file.display()))?;
    if groups.contains(&MASTERS) {
        output.warning(format_args!(
            "members of {MASTERS} may do everything, whatever roles say; this cannot be revoked \
             before {until}"
        ));
    }
    Ok(CommandOutcome::Success)
}

/// Checks that a certificate may be issued for this name.
fn check_name(what: &str, name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(!name.trim().is_empty(), "the name of a {what} is empty");
    anyhow::ensure!(
        !name.chars().any(char::is_control),
        "the name of a {what} must not contain control characters"
    );
    let reserved = RESERVED.iter().any(|it| name.starts_with(it));
    anyhow::ensure!(
        !reserved,
        "{what} {name:?}: such names are reserved for the server; choose another name, or \
         use `kubectl create token` for a service account"
    );
    Ok(())
}

/// Returns a file in the current directory, whatever characters the name has.
fn default_file(name: &str) -> PathBuf {
    let plain = |it: char| if it.is_alphanumeric() || "-_@.".contains(it) { it } else { '-' };
    let name: String = name.chars().map(plain).take(100).collect();
    Path::new(".").join(format!("{}.kubeconfig", name.trim_start_matches('.')))
}

fn list(arguments: &List, now: Timestamp, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let register = UserCertificates::open(&arguments.place.directory()?.join("pki"), now)?;
    let users = register.users();
    let form = match arguments.output {
        UserListFormat::Table => return table(users, now, false, output),
        UserListFormat::Wide => return table(users, now, true, output),
        UserListFormat::Yaml => OutputFormat::Yaml,
        UserListFormat::Json => OutputFormat::Json,
    };
    let users: Vec<Value> = users.iter().map(|user| described(user, now)).collect();
    output.result_text(&render(&json!({ "users": users }), form)?)?;
    Ok(CommandOutcome::Success)
}

fn described(user: &IssuedCertificate, now: Timestamp) -> Value {
    let IssuedCertificate { name, groups, issued, expires, sha256_hex } = user;
    json!({
        "name": name, "groups": groups, "issued": seconds(*issued), "expires": seconds(*expires),
        "expired": *expires < now, "credentialId": format!("X509SHA256={sha256_hex}"),
    })
}

fn table(
    users: &[IssuedCertificate],
    now: Timestamp,
    wide: bool,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    if users.is_empty() {
        output.note("no users; add one with `gantry user add NAME`");
        return Ok(CommandOutcome::Success);
    }
    let mut rows = vec![["NAME", "GROUPS", "EXPIRES", "ISSUED", "CREDENTIAL"].map(str::to_owned)];
    for IssuedCertificate { name, groups, issued, expires, sha256_hex } in users {
        let ended = if *expires < now { " (expired)" } else { "" };
        let groups = if groups.is_empty() { "<none>".to_owned() } else { groups.join(",") };
        let credential = format!("X509SHA256={sha256_hex}");
        let expires = format!("{}{ended}", seconds(*expires));
        rows.push([name.clone(), groups, expires, seconds(*issued), credential]);
    }
    let columns = if wide { 5 } else { 3 };
    let rows: Vec<&[String]> = rows.iter().map(|row| &row[..columns]).collect();
    output.result_text(&align(&rows, TABLE_GAP))?;
    Ok(CommandOutcome::Success)
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Parses a duration: a number and a unit.
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
    match length.filter(|it| *it <= MAX_CERTIFICATE_LIFETIME) {
        None => Err("a certificate is valid for at most 3650d".to_owned()),
        Some(Duration::ZERO) => Err("a certificate must be valid for more than 0s".to_owned()),
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
