//! `gantry apiserver`: the embedded API server alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use gantry_apiserver::{Mode, Plugins, Strangers};
use gantry_process::clock::Clock;
use gantry_process::metrics::{Build, Metrics};
use gantry_process::shutdown::{self, Signals};
use gantry_process::tasks::{self, Tasks};
use gantry_serve::pki::Identity;
use gantry_serve::tls::{ClientAuthority, ServerCertificate};
use gantry_store::{OnDamage, Recovery};
use gantry_token::StaticTokens;
use tokio_util::sync::CancellationToken;

use super::{End, run_to_end};
use crate::config;
use crate::output::Output;
use crate::server::{self, Plan, Running};
use crate::version::VERSION;

/// Run a durable, Kubernetes-compatible API server.
///
/// It keeps its objects in a directory and serves them to kubectl, helm and every client of
/// Kubernetes. Nothing else runs: no nodes, no workload controllers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry apiserver
  gantry apiserver --data-dir /var/lib/gantry --port 6443
  gantry apiserver --ephemeral --port 0 --kubeconfig /tmp/kubeconfig

Then, in another terminal:
  kubectl --kubeconfig ~/.local/share/gantry/apiserver/kubeconfig get namespaces")]
pub(super) struct Arguments {
    #[command(flatten)]
    flags: Flags,
}

/// What an API server can be told, whatever else runs beside it.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Where objects and keys are kept.
    ///
    /// Only its owner may read it. By default it is gantry/apiserver in XDG_DATA_HOME.
    #[arg(long, value_name = "DIR", env = "GANTRY_DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// Keep objects in memory only; they are gone when the server ends.
    #[arg(long)]
    ephemeral: bool,

    /// The port to listen on; 0 takes any that is free.
    #[arg(long, visible_alias = "secure-port", value_name = "PORT", default_value_t = 6443)]
    port: u16,

    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,

    /// Another name or address that clients reach the server by; may be repeated.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,

    /// Where to write the kubeconfig; by default it is in the data directory.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// A file with tokens and whom they stand for, in lines of token,user,uid,"group,group".
    ///
    /// Only its owner may read it. It is read once, when the server starts.
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// Another authority whose client certificates are believed, beside the server's own.
    ///
    /// The file holds one or more certificates in PEM.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,

    /// The certificate to show instead of the server's own, in PEM, with those that vouch for it.
    ///
    /// The last of them should be the authority's: kubeconfigs that are written believe in the file.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,

    /// The key of the certificate to show, in PEM. Only its owner may read it.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,

    /// Who signs the tokens of service accounts; also whom they are meant for.
    #[arg(long, value_name = "URL", default_value = ISSUER, value_parser = issuer)]
    service_account_issuer: String,

    /// The network services have their addresses in.
    #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16", value_parser = network)]
    service_cluster_ip_range: (Ipv4Addr, u8),

    /// Whether callers who show nothing may ask at all; they learn health and version.
    ///
    /// With the authorization mode AlwaysAllow they never may.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    anonymous_auth: bool,

    /// Who decides about requests, in this order.
    ///
    /// The first that allows one is asked no further. Members of system:masters may do everything.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "RBAC")]
    authorization_mode: Vec<Authorization>,

    /// Plug-ins of admission to switch on, by the names that Kubernetes has for them.
    ///
    /// What this server has is on by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,

    /// Plug-ins of admission to switch off.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,

    /// Open a damaged store: keep what precedes the damage and move the rest aside.
    #[arg(long)]
    repair: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Authorization {
    /// By the roles and bindings that are stored.
    #[value(name = "RBAC")]
    Rbac,
    /// Everyone with credentials may do everything.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Nobody else may do anything.
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
}

/// Who signs tokens if nothing else is said: the server's name inside a cluster.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// How long requests may take to finish when the server is told to stop.
const GRACE: Duration = Duration::from_secs(15);

pub(super) fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<End> {
    run_to_end(serve(arguments, output))
}

async fn serve(arguments: Arguments, output: &mut Output) -> anyhow::Result<End> {
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let metrics = Metrics::new(&Build { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::Counters::register(&metrics)?;
    let mut tasks =
        Tasks::new(Clock::system(), counters, fastrand::Rng::new(), &CancellationToken::new());
    let scratch = arguments.flags.scratch()?;
    let (plan, kubeconfig) = plan(arguments.flags, scratch.as_ref())?;
    let ephemeral = plan.ephemeral;
    let Running { store, address, recovery, kubeconfig: text, .. } =
        server::start(plan, &mut tasks, metrics).await?;
    report_recovery(&recovery, output);
    // Last: whoever waits for this file finds a server that has said all it has to say.
    gantry_serve::files::write_private(&kubeconfig, text.as_bytes())
        .with_context(|| format!("could not write the kubeconfig {}", kubeconfig.display()))?;
    output.result(format_args!("listening on https://{address}"))?;
    output.note(format_args!("kubeconfig: {}", kubeconfig.display()));
    output.note(format_args!("try: kubectl --kubeconfig {} get namespaces", kubeconfig.display()));
    if ephemeral {
        output.note("objects are kept in memory only: they are gone when this process ends");
    }
    watch_store(&store, &mut tasks);
    let end = until_stopped(&store, &mut tasks, &mut signals, output).await?;
    if end == End::Done {
        output.note("stopped; start again with the same directory to go on");
    }
    Ok(end)
}

/// What the server keeps its objects in.
type Store = gantry_store::Store<gantry_apiserver::stored::Known, gantry_apiserver::stored::Line>;

/// Waits until the process is told to stop, lets everything end, and closes the store.
pub(super) async fn until_stopped(
    store: &Store,
    tasks: &mut Tasks,
    signals: &mut Signals,
    output: &mut Output,
) -> anyhow::Result<End> {
    let ending = shutdown::run(tasks, signals, GRACE).await;
    let closing = store.clone();
    let closed = tokio::task::spawn_blocking(move || closing.close()).await?;
    if let Some(failure) = store.failed() {
        return Err(anyhow::Error::new(failure)
            .context("the store failed; start again to find out what the disk holds"));
    }
    closed.context("could not close the store")?;
    for loss in &ending.lost {
        output.error(format_args!("{loss}"));
    }
    Ok(if ending.is_clean() { End::Done } else { End::Refused })
}

impl Flags {
    /// An admission plugin that asks webhooks and is switched off. The controllers of `gantry up` rely on them.
    pub(super) fn disabled_webhook_plugin(&self) -> Option<&str> {
        const WEBHOOKS: [&str; 2] = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];
        let disabled = self.disable_admission_plugins.iter().map(String::as_str);
        disabled.into_iter().find(|it| WEBHOOKS.contains(it))
    }

    /// A directory for the keys of a server that keeps nothing.
    pub(super) fn scratch(&self) -> anyhow::Result<Option<tempfile::TempDir>> {
        match (&self.data_dir, self.ephemeral) {
            (None, true) => Ok(Some(tempfile::tempdir().context("could not create a directory")?)),
            _ => Ok(None),
        }
    }
}

/// Ends the process when the store fails: what the disk holds is only known after opening it anew.
pub(super) fn watch_store(store: &Store, tasks: &mut Tasks) {
    let store = store.clone();
    tasks.spawn("store", tasks::OnLoss::EndOwner, |stop| async move {
        // Both may be dropped: they only wait.
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = store.ended() => match ended {
                Some(failure) => Err(failure.into()),
                None => Ok(()),
            },
        }
    });
}

/// What the server is to be, and where its kubeconfig goes.
pub(super) fn plan(
    flags: Flags,
    scratch: Option<&tempfile::TempDir>,
) -> anyhow::Result<(Plan, PathBuf)> {
    let Flags {
        data_dir,
        ephemeral,
        port,
        bind_address,
        names,
        kubeconfig,
        token_auth_file,
        client_ca_file,
        tls_cert_file,
        tls_private_key_file,
        service_account_issuer,
        service_cluster_ip_range,
        anonymous_auth,
        authorization_mode,
        enable_admission_plugins,
        disable_admission_plugins,
        repair,
    } = flags;
    let plugins = Plugins::choose(&enable_admission_plugins, &disable_admission_plugins)?;
    let directory = match (data_dir, scratch) {
        (None, Some(scratch)) => scratch.path().to_owned(),
        (said, _) => config::data_dir(said.as_deref())?,
    };
    let mut names = names;
    let (network, _) = service_cluster_ip_range;
    names.push(Ipv4Addr::from(u32::from(network) + 1).to_string());
    if !bind_address.is_unspecified() && !bind_address.is_loopback() {
        names.push(bind_address.to_string());
    }
    let kubeconfig = kubeconfig.unwrap_or_else(|| directory.join("kubeconfig"));
    let plan = Plan {
        directory,
        ephemeral,
        address: SocketAddr::new(bind_address, port),
        names,
        damage: if repair { OnDamage::Repair } else { OnDamage::Refuse },
        authorization: modes(&authorization_mode)?,
        plugins,
        tokens: token_auth_file.as_deref().map(tokens).transpose()?.unwrap_or_default(),
        client_authority: client_ca_file.as_deref().map(authorities).transpose()?,
        certificate: match (tls_cert_file, tls_private_key_file) {
            (Some(certificate), Some(key)) => Some(certificate_of(&certificate, &key)?),
            _ => None,
        },
        issuer: service_account_issuer,
        strangers: match anonymous_auth {
            true => Strangers::Anonymous,
            false => Strangers::Refused,
        },
        service_network: service_cluster_ip_range,
        nodes: None,
        token_secrets: false,
        version: VERSION.version,
    };
    Ok((plan, kubeconfig))
}

/// The ways to decide about requests; each may be named once.
fn modes(named: &[Authorization]) -> anyhow::Result<Vec<Mode>> {
    let mut modes = Vec::new();
    for mode in named {
        let mode = match mode {
            Authorization::Rbac => Mode::Rbac,
            Authorization::AlwaysAllow => Mode::AlwaysAllow,
            Authorization::AlwaysDeny => Mode::AlwaysDeny,
        };
        anyhow::ensure!(!modes.contains(&mode), "--authorization-mode names {mode} more than once");
        modes.push(mode);
    }
    Ok(modes)
}

/// The tokens of a file.
fn tokens(path: &Path) -> anyhow::Result<StaticTokens> {
    let text = read_secret("--token-auth-file", path)?;
    StaticTokens::read(&text)
        .with_context(|| format!("cannot use --token-auth-file {}", path.display()))
}

/// More authorities, in PEM.
fn authorities(path: &Path) -> anyhow::Result<String> {
    let named = || format!("cannot use --client-ca-file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    ClientAuthority::new(&text).with_context(named)?;
    Ok(text)
}

/// A certificate and its key.
fn certificate_of(certificate: &Path, key: &Path) -> anyhow::Result<Identity> {
    let named = || {
        let (certificate, key) = (certificate.display(), key.display());
        format!("cannot use --tls-cert-file {certificate} with --tls-private-key-file {key}")
    };
    let text = std::fs::read_to_string(certificate)
        .with_context(|| format!("cannot use --tls-cert-file {}", certificate.display()))?;
    let key = read_secret("--tls-private-key-file", key)?;
    let identity = Identity { certificate: text, key };
    ServerCertificate::new(&identity).with_context(named)?;
    Ok(identity)
}

/// A file that only its owner may read, behind whatever links lead to it.
fn read_secret(flag: &str, path: &Path) -> anyhow::Result<String> {
    let named = || format!("cannot use {flag} {}", path.display());
    let path = path.canonicalize().with_context(named)?;
    let bytes = gantry_serve::files::read_private(&path).with_context(named)?;
    String::from_utf8(bytes.unwrap_or_default()).with_context(named)
}

/// An issuer of tokens: others look for its documents below it.
fn issuer(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").ok_or("it must begin with https://")?;
    let odd = |it: char| it.is_whitespace() || it.is_control() || matches!(it, '?' | '#' | '@');
    if rest.is_empty() || rest.starts_with('/') || rest.contains(odd) {
        return Err("write https://HOST, with a path if need be, and no query".to_owned());
    }
    Ok(text.to_owned())
}

/// A network of version 4 with room for services and not much more.
fn network(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let wanted = "write an IPv4 network such as 10.96.0.0/16";
    let (address, bits) = text.split_once('/').ok_or(wanted)?;
    let address: Ipv4Addr = address.parse().map_err(|_| wanted)?;
    let bits: u8 = bits.parse().map_err(|_| wanted)?;
    if !(12..=29).contains(&bits) {
        return Err("the number after the slash must be from 12 to 29".to_owned());
    }
    let mask = u32::MAX << (32 - u32::from(bits));
    Ok((Ipv4Addr::from(u32::from(address) & mask), bits))
}

pub(super) fn report_recovery(recovery: &Recovery, output: &mut Output) {
    let Recovery { revision, checkpoint, changes, segments: _, cut, repaired } = recovery;
    tracing::info!(
        revision = revision.get(),
        checkpoint = checkpoint.map(|it| it.get()),
        changes,
        "opened the store"
    );
    if let Some(cut) = cut {
        output.note(format_args!(
            "the last writes before a crash were unfinished and are dropped; none of them had been \
             acknowledged ({} from byte {})",
            cut.path.display(),
            cut.offset
        ));
    }
    if let Some(repaired) = repaired {
        output.warning(format_args!("repaired: {}", repaired.damage));
        for path in &repaired.aside {
            output.warning(format_args!("moved aside: {}", path.display()));
        }
        let resumed = repaired.resumed.get();
        output.warning(format_args!("the store goes on from revision {resumed}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_for_services() {
        let table = [
            ("10.96.0.0/16", Some((Ipv4Addr::new(10, 96, 0, 0), 16))),
            ("10.1.2.3/24", Some((Ipv4Addr::new(10, 1, 2, 0), 24))),
            ("10.0.0.0/29", Some((Ipv4Addr::new(10, 0, 0, 0), 29))),
            ("10.0.0.0/30", None),
            ("10.0.0.0/11", None),
            ("10.0.0.0", None),
            ("fd00::/112", None),
            ("10.0.0/16", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(network(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn issuers_of_tokens() {
        for text in [ISSUER, "https://example.com/gantry", "https://10.0.0.1:6443"] {
            assert_eq!(issuer(text), Ok(text.to_owned()));
        }
        for text in [
            "",
            "gantry",
            "http://a",
            "https://",
            "https:///a",
            "https://a?b",
            "https://a#b",
            "https://a b",
        ] {
            assert!(issuer(text).is_err(), "{text}");
        }
    }
}
