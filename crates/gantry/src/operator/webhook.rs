//! Serves the admission webhooks for pods that claim devices and for AppWrappers, and configures
//! the API server to call them.
//!
//! The certificate is created by the operator and stored in a Secret, so that all of its replicas
//! serve the same one and any of them may answer. Once a minute the certificate and the webhook
//! configurations are reconciled: changes and deletions by other clients are reverted. The previous
//! certificate stays trusted, for the minute in which some replicas still serve it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gantry_controller::read::{self, ReadBounds};
use gantry_placement::subsystem::FIELD_MANAGER;
use gantry_placement::subsystem::configuration::Configuration;
use gantry_process::clock::Clock;
use gantry_process::tasks::OnLoss;
use gantry_reconcile::ApiPath;
use gantry_serve::counters::Counters;
use gantry_serve::limits::{Limits, RequestBody, RequestClass, RequestLimits};
use gantry_serve::pki::{Identity, StandaloneCertificate};
use gantry_serve::tls::ServerCertificate;
use gantry_serve::{Body, Options, Peer, TransportSecurity};
use gantry_subsystem::Host;
use gantry_subsystem::admission::HookCaller;
use gantry_subsystem::start::HostExtensions;
use http::{Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster::{CallError, RequestDescription, call, client};
use super::{ProcessContext, StartOptions};
use crate::admission_hooks::{AdmissionHooks, HookConfiguration, SERVICE, service};
use gantry_queue::effects::admission::LeafAdmission;

/// The Secret with the certificate, in the operator's namespace.
pub const SECRET: &str = "gantry-webhook";

/// How often the certificate and the configurations are reconciled.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum size of a review: the stored and the new object, and something around them.
const MAX_REVIEW_BYTES: usize = 8 << 20;
/// How often the write of the Secret is tried if others write it at the same time.
const MAX_SECRET_WRITE_ATTEMPTS: usize = 5;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";
const PREVIOUS_AUTHORITY: &str = "former-ca.crt";

/// Serves the webhooks, if any is enabled, and configures the API server.
///
/// # Errors
/// The address is in use, or the operator lacks a permission.
pub(super) async fn start(
    start: &StartOptions,
    counters: Counters,
    shell: &mut ProcessContext,
    leaves: LeafAdmission,
) -> anyhow::Result<()> {
    let hooks =
        AdmissionHooks::new(&start.checked.values, &HostExtensions::default().with(leaves))?;
    let Some(topics) = hooks.topics() else { return Ok(()) };
    let settings = Configuration::read(&start.checked.values)?.webhook;
    let addresses = settings.bind_address.candidates();
    if addresses.is_empty() {
        // The configuration is not valid then.
        return Ok(());
    }
    let clock = shell.tasks.clock().clone();
    let namespace = start.config_watch.sources.own_namespace()?;
    let place = WebhookAddress::new(&settings.url, namespace)?;
    let client = client(&start.config)?;
    let user = match hooks.needs_operator_user() {
        true => own_user(&client, &clock).await?,
        false => String::new(),
    };
    let keeper = WebhookReconciler {
        client,
        clock: clock.clone(),
        hooks: hooks.clone(),
        address: place,
        user,
    };
    let kept = keeper.ensure_certificate().await?;
    let certificate = ServerCertificate::new(&kept.sealed.identity)?;
    let security = TransportSecurity::Tls { certificate: certificate.clone(), clients: None };
    let answers = webhook_service(hooks, clock, counters.clone());
    let mut at = Err(anyhow::anyhow!("there is no address to listen on"));
    for address in addresses {
        let (options, answers) = (Options::new(address, security.clone()), answers.clone());
        let counters = counters.clone();
        let tried = gantry_serve::serve(&mut shell.tasks, "webhook", options, counters, answers);
        at = tried.await.map_err(anyhow::Error::from);
        if at.is_ok() {
            break;
        }
    }
    let at = at?;
    // The API server calls the webhooks as soon as they are configured, so this comes last.
    keeper.apply_configurations(&kept).await?;
    tracing::info!(
        address = %at, reached = %keeper.address, "serving admission webhooks for {topics}"
    );
    shell.tasks.spawn("webhook configurations", OnLoss::EndOwner, move |stop| async move {
        let mut shown = kept;
        loop {
            tokio::select! {
                // Either future may be dropped: both only wait.
                () = stop.cancelled() => return Ok(()),
                () = keeper.clock.sleep(RECONCILE_INTERVAL) => {}
            }
            tokio::select! {
                // A partial write is found and finished by the next start.
                () = stop.cancelled() => return Ok(()),
                kept = keeper.reconcile(&certificate, &shown) => match kept {
                    Ok(kept) => shown = kept,
                    Err(error) => tracing::warn!(
                        error = format!("{error:#}"),
                        "could not reconcile the webhook; retrying in a minute"
                    ),
                },
            }
        }
    });
    Ok(())
}

/// Returns the service: limits first, then the webhooks.
fn webhook_service(
    hooks: AdmissionHooks,
    clock: Clock,
    counters: Counters,
) -> impl Fn(Request<Incoming>, Arc<Peer>) -> ResponseFuture + Clone + Send + Sync + 'static {
    let figures = RequestLimits { max_body_bytes: MAX_REVIEW_BYTES, ..RequestLimits::default() };
    let limits =
        Limits::new(figures, clock, counters, |parts| RequestClass::of_method(&parts.method));
    move |request, _| {
        let (limits, hooks) = (limits.clone(), hooks.clone());
        Box::pin(async move { limits.handle(request, |request| reply(hooks, request)).await })
    }
}

type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

async fn reply(hooks: AdmissionHooks, request: Request<RequestBody>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let nothing = || plain(StatusCode::NOT_FOUND, "no webhook has this path");
    if !hooks.handles_path(parts.uri.path()) {
        return nothing();
    }
    if parts.method != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only POST is supported");
    }
    let body = match body.read().await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    match serde_json::from_slice::<Value>(&body) {
        Ok(review) => {
            let Some(answer) = hooks.review(parts.uri.path(), &review) else {
                return nothing();
            };
            let mut said = plain(StatusCode::OK, &answer.to_string());
            let json = header::HeaderValue::from_static("application/json");
            said.headers_mut().insert(header::CONTENT_TYPE, json);
            said
        }
        Err(error) => plain(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {error}")),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut answer = Response::new(gantry_serve::body::full(text.to_owned()));
    *answer.status_mut() = status;
    answer
}

/// The address at which the API server calls the webhooks.
#[derive(Clone, Debug)]
struct WebhookAddress {
    url: String,
    /// The operator's namespace.
    namespace: String,
    /// The names in the certificate.
    names: Vec<String>,
}

impl WebhookAddress {
    fn new(url: &str, namespace: String) -> anyhow::Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        let name = match url.is_empty() {
            true => format!("{SERVICE}.{namespace}.svc"),
            false => {
                let uri: Uri = url.parse().with_context(|| format!("cannot use {url:?}"))?;
                let host = uri.host().with_context(|| format!("{url:?} has no host"))?;
                host.trim_matches(['[', ']']).to_owned()
            }
        };
        Ok(Self { url, namespace, names: vec![name] })
    }

    /// Returns the client configuration for a path.
    fn client(&self, path: &str, authorities: &str) -> Value {
        let Self { url, namespace, .. } = self;
        let mut client = match url.is_empty() {
            true => service(namespace, path),
            false => json!({"url": format!("{url}{path}")}),
        };
        client["caBundle"] = json!(ByteString(authorities.as_bytes().to_vec()));
        client
    }
}

impl std::fmt::Display for WebhookAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, namespace, .. } = self;
        match url.is_empty() {
            true => write!(f, "service {namespace}/{SERVICE}"),
            false => f.write_str(url),
        }
    }
}

/// The certificate, and the authority of the previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WebhookCertificate {
    sealed: StandaloneCertificate,
    previous_authority: String,
}

/// Reconciles the certificate and the configurations.
struct WebhookReconciler {
    client: kube::Client,
    clock: Clock,
    hooks: AdmissionHooks,
    address: WebhookAddress,
    /// The operator's user name: only this user may write what drivers trust.
    user: String,
}

/// Asks the server for the operator's user name: that of its service account, or of its kubeconfig.
async fn own_user(client: &kube::Client, clock: &Clock) -> anyhow::Result<String> {
    const BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(30), bytes: 1 << 20 };
    let path = ApiPath::from_static("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let kind = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let body = ("application/json", Some(&kind));
    let said = read::send(client, clock, Method::POST, &path, body, BOUNDS).await;
    let said = said.context("could not ask the API server for the operator's user name")?;
    let user = said["status"]["userInfo"]["username"].as_str();
    Ok(user.context("the API server does not return the operator's user name")?.to_owned())
}

impl WebhookReconciler {
    /// Reconciles everything once.
    async fn reconcile(
        &self,
        certificate: &ServerCertificate,
        shown: &WebhookCertificate,
    ) -> anyhow::Result<WebhookCertificate> {
        let kept = self.ensure_certificate().await?;
        if kept != *shown {
            certificate.replace(&kept.sealed.identity)?;
        }
        self.apply_configurations(&kept).await?;
        Ok(kept)
    }

    /// Returns the certificate in the Secret; creates it if it does not exist or has expired.
    async fn ensure_certificate(&self) -> anyhow::Result<WebhookCertificate> {
        let WebhookAddress { namespace, names, .. } = &self.address;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let asked = |verb| {
            move || RequestDescription {
                verb,
                resource: "secrets",
                name: SECRET.to_owned(),
                namespace: Some(namespace.clone()),
            }
        };
        let mut last = String::new();
        for _ in 0..MAX_SECRET_WRITE_ATTEMPTS {
            let found = call(&self.clock, asked("get"), secrets.get_opt(SECRET)).await?;
            let now = self.clock.now();
            let why = match found.as_ref().map(|it| parse_secret(it, names, now)) {
                Some(Ok(kept)) => return Ok(kept),
                Some(Err(why)) => why,
                None => "it does not exist",
            };
            tracing::info!(secret = format!("{namespace}/{SECRET}"), why, "creating a certificate");
            let former = found.as_ref().map(|it| text(it, AUTHORITY)).unwrap_or_default();
            let kept = WebhookCertificate {
                sealed: StandaloneCertificate::create(names, now)?,
                previous_authority: former,
            };
            let how = PostParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PostParams::default()
            };
            let written = match found {
                None => {
                    let secret = secret(namespace, &kept, None);
                    call(&self.clock, asked("create"), secrets.create(&how, &secret)).await
                }
                Some(found) => {
                    let secret = secret(namespace, &kept, found.metadata.resource_version);
                    let replaced = secrets.replace(SECRET, &how, &secret);
                    call(&self.clock, asked("update"), replaced).await
                }
            };
            match written {
                Ok(_) => return Ok(kept),
                // If another replica was first, its certificate is used.
                Err(CallError::Refused { says, .. }) => {
                    tracing::info!(says, "another replica wrote the certificate");
                    last = says;
                }
                Err(error @ (CallError::Forbidden { .. } | CallError::NoResponse { .. })) => {
                    return Err(error.into());
                }
            }
        }
        anyhow::bail!("could not store a certificate in Secret {namespace}/{SECRET}: {last}")
    }

    /// Applies the webhook configurations, with the authorities to trust.
    async fn apply_configurations(&self, kept: &WebhookCertificate) -> anyhow::Result<()> {
        let authorities = format!("{}{}", kept.sealed.authority, kept.previous_authority);
        let client = |path: &str| self.address.client(path, &authorities);
        let caller = HookCaller { client: &client, host: Host::Cluster, user: &self.user };
        for HookConfiguration { manager, configuration } in self.hooks.configurations(&caller) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = text(&configuration["kind"]);
            let name = text(&configuration["metadata"]["name"]);
            let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
            let resource = ApiResource::from_gvk(&kind);
            let all = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
            let asked = || RequestDescription {
                verb: "patch",
                resource: match kind.kind.starts_with("Mutating") {
                    true => "mutatingwebhookconfigurations.admissionregistration.k8s.io",
                    false => "validatingwebhookconfigurations.admissionregistration.k8s.io",
                },
                name: name.clone(),
                namespace: None,
            };
            let how = PatchParams::apply(manager).force();
            let patch = Patch::Apply(&configuration);
            call(&self.clock, asked, all.patch(&name, &how, &patch)).await?;
        }
        Ok(())
    }
}

/// Parses the certificate in a Secret.
fn parse_secret(
    secret: &Secret,
    names: &[String],
    now: jiff::Timestamp,
) -> Result<WebhookCertificate, &'static str> {
    let identity = Identity { certificate: text(secret, CERTIFICATE), key: text(secret, KEY) };
    let sealed = StandaloneCertificate::open(&text(secret, AUTHORITY), identity, names, now)?;
    Ok(WebhookCertificate { sealed, previous_authority: text(secret, PREVIOUS_AUTHORITY) })
}

fn text(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    bytes.map(|it| String::from_utf8_lossy(&it.0).into_owned()).unwrap_or_default()
}

fn secret(namespace: &str, kept: &WebhookCertificate, revision: Option<String>) -> Secret {
    let WebhookCertificate {
        sealed: StandaloneCertificate { authority, identity, .. },
        previous_authority: former,
    } = kept;
    let data = [
        (CERTIFICATE, &identity.certificate),
        (KEY, &identity.key),
        (AUTHORITY, authority),
        (PREVIOUS_AUTHORITY, former),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some([("app.kubernetes.io/part-of".to_owned(), "gantry".to_owned())].into()),
            resource_version: revision,
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.into()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_read_back_from_its_secret() {
        let place = WebhookAddress::new("", "gantry-system".to_owned()).unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let sealed = StandaloneCertificate::create(&place.names, now).unwrap();
        let kept = WebhookCertificate { sealed, previous_authority: "before".to_owned() };
        let secret = secret("gantry-system", &kept, None);
        assert_eq!(parse_secret(&secret, &place.names, now), Ok(kept));
        assert!(parse_secret(&Secret::default(), &place.names, now).is_err());
    }

    #[test]
    fn client_config_names_url_or_service() {
        let inside = WebhookAddress::new("", "ns".to_owned()).unwrap();
        assert_eq!(inside.names, ["gantry-webhook.ns.svc"]);
        assert_eq!(
            inside.client("/p", "A"),
            json!({
                "service": {"namespace": "ns", "name": "gantry-webhook", "port": 443, "path": "/p"},
                "caBundle": "QQ==",
            })
        );
        let outside = WebhookAddress::new("https://[::1]:9443/", "ns".to_owned()).unwrap();
        assert_eq!(outside.names, ["::1"]);
        assert_eq!(outside.client("/p", "A")["url"], "https://[::1]:9443/p");
    }
}
