//! Runs the cases against one server, or against two and compares them.
//!
//!     conform KUBECONFIG [OTHER-KUBECONFIG] [--only PART-OF-A-NAME] [--controllers]
//!
//! With `--controllers` also those that want controllers and a short history.
//! The first server is the judge. Exit status 0: every case holds and nothing differs.

use std::io::Write;
use std::process::ExitCode;
use std::{env, fs, io};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_conformance::case::Case;
use gantry_conformance::cases;
use gantry_conformance::run::{Report, Settings, run};
use gantry_process::clock::Clock;
use gantry_testkit::http::{Credentials, Target, install_provider};
use serde::Deserialize;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Arguments { targets, only, controllers } = Arguments::read(env::args().skip(1))?;
    install_provider();
    let all = cases::all().chain(cases::controlled().filter(|_| controllers));
    let cases: Vec<Case> = all.filter(|case| case.name.contains(&only)).collect();
    let clock = Clock::system();
    // Names of a run that was cut short must not stand in the way of the next.
    let number = clock.now().as_second();
    let mut reports: Vec<Report> = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let label = format!("{number:x}{index}");
        let settings = Settings { label: &label, clock: &clock };
        reports.push(run(&cases, target, settings).await?);
    }
    let mut out = io::stdout().lock();
    let mut good = true;
    for report in &reports {
        writeln!(out, "{report}")?;
        good &= report.holds();
    }
    if let [real, other] = reports.as_slice() {
        let differences = real.differences(other);
        differences.iter().try_for_each(|difference| writeln!(out, "{difference}"))?;
        writeln!(out, "{} differences", differences.len())?;
        good &= differences.is_empty();
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the command line says.
struct Arguments {
    targets: Vec<Target>,
    only: String,
    controllers: bool,
}

impl Arguments {
    /// Reads the words of the command line, and the kubeconfigs they name.
    fn read(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut targets, mut only, mut controllers) = (Vec::new(), String::new(), false);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--only" => only = words.next().context("--only needs a part of a case's name")?,
                "--controllers" => controllers = true,
                path => targets.push(read_target(path)?),
            }
        }
        if !matches!(targets.len(), 1 | 2) {
            bail!("usage: conform KUBECONFIG [OTHER-KUBECONFIG] [--only PART] [--controllers]");
        }
        Ok(Self { targets, only, controllers })
    }
}

/// The parts of a kubeconfig that we read. There is one cluster and one user in it.
#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
}

/// The server and the user of a kubeconfig.
fn read_target(path: &str) -> anyhow::Result<Target> {
    let text = fs::read_to_string(path).with_context(|| format!("could not read {path}"))?;
    let Kubeconfig { clusters, users } =
        serde_saphyr::from_str(&text).with_context(|| format!("cannot read {path}"))?;
    let cluster = clusters.into_iter().next().with_context(|| format!("no cluster in {path}"))?;
    let user = users.into_iter().next().with_context(|| format!("no user in {path}"))?;
    let Cluster { server, certificate_authority, certificate_authority_data } = cluster.cluster;
    let authority = pem(certificate_authority_data, certificate_authority)?.unwrap_or_default();
    let credentials = credentials(user.user)?;
    Ok(Target { base: server, authority, credentials })
}

/// Who the user is: the bearer of a token, or the holder of a certificate.
fn credentials(user: User) -> anyhow::Result<Credentials> {
    let User { token, client_certificate, client_certificate_data, client_key, client_key_data } =
        user;
    if let Some(token) = token {
        return Ok(Credentials::Token(token));
    }
    let chain = pem(client_certificate_data, client_certificate)?;
    let key = pem(client_key_data, client_key)?;
    let (Some(chain), Some(key)) = (chain, key) else { return Ok(Credentials::Anonymous) };
    Ok(Credentials::Certificate { chain, key })
}

/// PEM that is in the kubeconfig itself in base64, or in a file beside it.
fn pem(data: Option<String>, path: Option<String>) -> anyhow::Result<Option<String>> {
    match (data, path) {
        (Some(data), _) => {
            let bytes = STANDARD.decode(data).context("cannot decode a certificate")?;
            Ok(Some(String::from_utf8(bytes)?))
        }
        (None, Some(path)) => {
            let text =
                fs::read_to_string(&path).with_context(|| format!("could not read {path}"))?;
            Ok(Some(text))
        }
        (None, None) => Ok(None),
    }
}
