//! `gantry apiserver`: the embedded API server alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use gantry_apiserver::{AdmissionPlugins, AnonymousAccess, AuthorizationMode};
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::shutdown::{self, Signals};
use gantry_process::tasks::{self, Tasks};
use gantry_serve::pki::Identity;
use gantry_serve::tls::{ClientAuthority, ServerCertificate};
use gantry_store::{OnDamage, Recovery};
use gantry_token::StaticTokens;
use tokio_util::sync::CancellationToken;

use super::{CommandOutcome, run_to_end};
use crate::config;
use crate::output::Output;
use crate::server::{self, RunningServer, ServerConfig};
use crate::version::VERSION;

/// Run a durable, Kubernetes-compatible API server.
///
/// It stores its objects in a directory and serves them to kubectl, helm and every Kubernetes
/// client. Nothing else runs: no nodes, no workload controllers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gantry apiserver
  gantry apiserver --data-dir /var/lib/gantry --port 6443
  gantry apiserver --ephemeral --port 0 --kubeconfig /tmp/kubeconfig

Then, in another terminal:
  kubectl --kubeconfig ~/.local/share/gantry/apiserver/kubeconfig get namespaces")]
pub(super) struct Arguments {
    #[command(flatten)]
    flags: ServerFlags,
}

/// Flags of the API server, for every command that runs one.
#[derive(Debug, clap::Args)]
pub(super) struct ServerFlags {
    /// The directory for objects and keys.
    ///
    /// Only its owner can read it. The default is gantry/apiserver in XDG_DATA_HOME.
    #[arg(long, value_name = "DIR", env = "GANTRY_DATA_DIR")]
    data_dir: Option<PathBuf>,

    /// Keep objects in memory only; they are lost when the server stops.
    #[arg(long)]
    ephemeral: bool,

    /// The port to listen on; 0 selects a free one.
    #[arg(long, visible_alias = "secure-port", value_name = "PORT", default_value_t = 6443)]
    port: u16,

    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,

    /// Another name or address that clients use for the server; may be repeated.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,

    /// The kubeconfig file to write; by default it is in the data directory.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// A file with tokens and their users, in lines of token,user,uid,"group,group".
    ///
    /// Only its owner may be able to read it. It is read once, when the server starts.
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// A file with additional certificate authorities for client certificates, beside the server's
    /// own.
    ///
    /// The file holds one or more certificates in PEM.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,

    /// The serving certificate to use instead of the server's own, in PEM, with its chain.
    ///
    /// The last certificate should be that of the authority: kubeconfigs that are written trust
    /// this file.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,

    /// The key of the serving certificate, in PEM. Only its owner may be able to read it.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,

    /// The issuer of service account tokens; also their audience.
    #[arg(long, value_name = "URL", default_value = ISSUER, value_parser = issuer)]
    service_account_issuer: String,

    /// The network for the addresses of services.
    #[arg(long, value_name = "CIDR", default_value = "10.96.0.0/16", value_parser = network)]
    service_cluster_ip_range: (Ipv4Addr, u8),

    /// Whether anonymous requests are accepted; they may read only health and version.
    ///
    /// With the authorization mode AlwaysAllow they are always refused.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    anonymous_auth: bool,

    /// The authorizers, in this order.
    ///
    /// The first one that allows a request decides. Members of system:masters may do everything.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "RBAC")]
    authorization_mode: Vec<Authorization>,

    /// Admission plugins to enable, by their Kubernetes names.
    ///
    /// All plugins that this server has are enabled by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,

    /// Admission plugins to disable.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,

    /// Open a damaged store: keep what precedes the damage and move the rest to another directory.
    #[arg(long)]
    repair: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Authorization {
    /// The stored roles and bindings decide.
    #[value(name = "RBAC")]
    Rbac,
    /// Every authenticated caller may do everything.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Every request that no earlier authorizer allows is denied.
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
}

/// The default issuer of tokens: the server's name inside a cluster.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// How long requests may take to finish when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    run_to_end(serve(arguments, output))
}

async fn serve(arguments: Arguments, output: &mut Output) -> anyhow::Result<CommandOutcome> {
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let metrics = Metrics::new(&BuildInfo { version: VERSION.version, revision: VERSION.commit });
    let counters = tasks::TaskMetrics::register(&metrics)?;
    let mut tasks =
        Tasks::new(Clock::system(), counters, fastrand::Rng::new(), &CancellationToken::new());
    let scratch = arguments.flags.temporary_directory()?;
    let (plan, kubeconfig) = server_config(arguments.flags, scratch.as_ref())?;
    let ephemeral = plan.ephemeral;
    let RunningServer { store, address, recovery, kubeconfig: text, .. } =
        server::start(plan, &mut tasks, metrics).await?;
    report_recovery(&recovery, output);
    // The file is written last: a process that waits for it finds a server that is ready.
    gantry_serve::files::write_private(&kubeconfig, text.as_bytes())
        .with_context(|| format!("could not write the kubeconfig {}", kubeconfig.display()))?;
    output.result(format_args!("listening on https://{address}"))?;
    output.note(format_args!("kubeconfig: {}", kubeconfig.display()));
    output.note(format_args!("try: kubectl --kubeconfig {} get namespaces", kubeconfig.display()));
    if ephemeral {
        output.note("objects are kept in memory only: they are lost when this process ends");
    }
    exit_on_store_failure(&store, &mut tasks);
    let end = until_stopped(&store, &mut tasks, &mut signals, output).await?;
    if end == CommandOutcome::Success {
        output.note("stopped; start again with the same directory to continue");
    }
    Ok(end)
}

/// The directory in which the server stores its objects.
type Store = gantry_store::Store<
    gantry_apiserver::resource::stored::EntryCache,
    gantry_apiserver::resource::stored::EncodedEvent,
>;

/// Waits until the process is stopped, waits for all tasks, and closes the store.
pub(super) async fn until_stopped(
    store: &Store,
    tasks: &mut Tasks,
    signals: &mut Signals,
    output: &mut Output,
) -> anyhow::Result<CommandOutcome> {
    let ending = shutdown::run(tasks, signals, SHUTDOWN_TIMEOUT).await;
    let closing = store.clone();
    let closed = tokio::task::spawn_blocking(move || closing.close()).await?;
    if let Some(failure) = store.failed() {
        return Err(anyhow::Error::new(failure)
            .context("the store failed; restart to read what is on the disk"));
    }
    closed.context("could not close the store")?;
    for loss in &ending.lost {
        output.error(format_args!("{loss}"));
    }
    Ok(if ending.is_clean() { CommandOutcome::Success } else { CommandOutcome::Failure })
}

impl ServerFlags {
    /// Returns the disabled admission plugin that calls webhooks, if any. The controllers of
    /// `gantry up` rely on them.
    pub(super) fn disabled_webhook_plugin(&self) -> Option<&str> {
        const WEBHOOKS: [&str; 2] = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];
        let disabled = self.disable_admission_plugins.iter().map(String::as_str);
        disabled.into_iter().find(|it| WEBHOOKS.contains(it))
    }

    /// Creates a directory for the keys of a server that stores nothing.
    pub(super) fn temporary_directory(&self) -> anyhow::Result<Option<tempfile::TempDir>> {
        match (&self.data_dir, self.ephemeral) {
            (None, true) => Ok(Some(tempfile::tempdir().context("could not create a directory")?)),
            _ => Ok(None),
        }
    }
}

/// Ends the process when the store fails: what the disk holds is only known after it is opened
/// again.
pub(super) fn exit_on_store_failure(store: &Store, tasks: &mut Tasks) {
    let store = store.clone();
    tasks.spawn("store", tasks::OnLoss::EndOwner, |stop| async move {
        // Both futures may be dropped: they only wait.
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = store.wait_until_ended() => match ended {
                Some(failure) => Err(failure.into()),
                None => Ok(()),
            },
        }
    });
}

/// Builds the server's configuration, and the path of its kubeconfig.
pub(super) fn server_config(
    flags: ServerFlags,
    scratch: Option<&tempfile::TempDir>,
) -> anyhow::Result<(ServerConfig, PathBuf)> {
    let ServerFlags {
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
    let plugins =
        AdmissionPlugins::from_flags(&enable_admission_plugins, &disable_admission_plugins)?;
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
    let plan = ServerConfig {
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
        anonymous_access: match anonymous_auth {
            true => AnonymousAccess::Allowed,
            false => AnonymousAccess::Denied,
        },
        service_network: service_cluster_ip_range,
        nodes: None,
        token_secrets: false,
        registry: None,
        version: VERSION.version,
    };
    Ok((plan, kubeconfig))
}

/// Parses the authorization modes; each may be named once.
fn modes(named: &[Authorization]) -> anyhow::Result<Vec<AuthorizationMode>> {
    let mut modes = Vec::new();
    for mode in named {
        let mode = match mode {
            Authorization::Rbac => AuthorizationMode::Rbac,
            Authorization::AlwaysAllow => AuthorizationMode::AlwaysAllow,
            Authorization::AlwaysDeny => AuthorizationMode::AlwaysDeny,
        };
        anyhow::ensure!(!modes.contains(&mode), "--authorization-mode names {mode} more than once");
        modes.push(mode);
    }
    Ok(modes)
}

/// Reads the tokens of a file.
fn tokens(path: &Path) -> anyhow::Result<StaticTokens> {
    let text = read_secret("--token-auth-file", path)?;
    StaticTokens::parse(&text)
        .with_context(|| format!("cannot use --token-auth-file {}", path.display()))
}

/// Reads additional certificate authorities, in PEM.
fn authorities(path: &Path) -> anyhow::Result<String> {
    let named = || format!("cannot use --client-ca-file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    ClientAuthority::new(&text).with_context(named)?;
    Ok(text)
}

/// Reads a certificate and its key.
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

/// Reads a file that only its owner may be able to read, following links.
fn read_secret(flag: &str, path: &Path) -> anyhow::Result<String> {
    let named = || format!("cannot use {flag} {}", path.display());
    let path = path.canonicalize().with_context(named)?;
    let bytes = gantry_serve::files::read_private(&path).with_context(named)?;
    String::from_utf8(bytes.unwrap_or_default()).with_context(named)
}

/// Parses an issuer of tokens: clients fetch its discovery documents below this URL.
fn issuer(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").ok_or("it must begin with https://")?;
    let odd = |it: char| it.is_whitespace() || it.is_control() || matches!(it, '?' | '#' | '@');
    if rest.is_empty() || rest.starts_with('/') || rest.contains(odd) {
        return Err("write https://HOST, with a path if need be, and no query".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses an IPv4 network that is large enough for services and not much larger.
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
    let Recovery { revision, checkpoint, changes, segments: _, torn_tail: cut, repair: repaired } =
        recovery;
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
        for path in &repaired.moved_aside {
            output.warning(format_args!("moved aside: {}", path.display()));
        }
        let resumed = repaired.resumed.get();
        output.warning(format_args!("the store continues from revision {resumed}"));
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
