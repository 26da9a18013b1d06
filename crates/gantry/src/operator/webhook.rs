//! Answers the API server when it asks about pods that claim devices or about AppWrappers, and lets it know
//! that it may.
//!
//! The certificate is made by the operator and kept in a Secret, so that all of its replicas show the
//! same one and any of them may answer. Once a minute it is looked at again, and so are the
//! configurations: whoever changes or deletes them finds them as they were. The certificate that was
//! shown before stays trusted, for the minute in which some replicas still show it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gantry_controller::read::{self, Bounds};
use gantry_placement::subsystem::MANAGER;
use gantry_placement::subsystem::configuration::Configuration;
use gantry_process::clock::Clock;
use gantry_process::tasks::OnLoss;
use gantry_reconcile::ApiPath;
use gantry_serve::counters::Counters;
use gantry_serve::limits::{Class, Figures, Limits, RequestBody};
use gantry_serve::pki::{Identity, Sealed};
use gantry_serve::tls::ServerCertificate;
use gantry_serve::{Body, Door, Options, Peer};
use gantry_subsystem::Host;
use gantry_subsystem::admission::HookCaller;
use gantry_subsystem::start::Offers;
use http::{Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster::{Asked, CallError, call, client};
use super::{Shell, Start};
use crate::admission_hooks::{AdmissionHooks, HookConfiguration, SERVICE, service};
use gantry_queue::effects::admission::LeafAdmission;

/// The Secret with the certificate, in the operator's namespace.
pub const SECRET: &str = "gantry-webhook";

/// How often everything is looked at again.
const EVERY: Duration = Duration::from_secs(60);
/// The largest question: what is stored and what is to be, and something around it.
const LARGEST: usize = 8 << 20;
/// How often the Secret is tried when others write it at the same time.
const TRIES: usize = 5;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";
const FORMER: &str = "former-ca.crt";

/// Answers, if anything is to be asked, and says where.
///
/// # Errors
/// The address is taken, or the operator may not do what it takes.
pub(super) async fn start(
    start: &Start,
    counters: Counters,
    shell: &mut Shell,
    leaves: LeafAdmission,
) -> anyhow::Result<()> {
    let hooks = AdmissionHooks::new(&start.checked.values, &Offers::default().with(leaves))?;
    let Some(topics) = hooks.topics() else { return Ok(()) };
    let settings = Configuration::read(&start.checked.values)?.webhook;
    let addresses = settings.bind_address.candidates();
    if addresses.is_empty() {
        // The configuration is not valid then.
        return Ok(());
    }
    let clock = shell.tasks.clock().clone();
    let namespace = start.follow.sources.own_namespace()?;
    let place = Place::new(&settings.url, namespace)?;
    let client = client(&start.config)?;
    let user = match hooks.names_user() {
        true => own_user(&client, &clock).await?,
        false => String::new(),
    };
    let keeper = Keeper { client, clock: clock.clone(), hooks: hooks.clone(), place, user };
    let kept = keeper.certificate().await?;
    let certificate = ServerCertificate::new(&kept.sealed.identity)?;
    let door = Door::Tls { certificate: certificate.clone(), clients: None };
    let answers = answers(hooks, clock, counters.clone());
    let mut at = Err(anyhow::anyhow!("there is no address to listen on"));
    for address in addresses {
        let (options, answers) = (Options::new(address, door.clone()), answers.clone());
        let counters = counters.clone();
        let tried = gantry_serve::serve(&mut shell.tasks, "webhook", options, counters, answers);
        at = tried.await.map_err(anyhow::Error::from);
        if at.is_ok() {
            break;
        }
    }
    let at = at?;
    // Only now: whoever is named there is asked.
    keeper.announce(&kept).await?;
    tracing::info!(address = %at, reached = %keeper.place, "answering the API server about {topics}");
    shell.tasks.spawn("webhook configurations", OnLoss::EndOwner, move |stop| async move {
        let mut shown = kept;
        loop {
            tokio::select! {
                // Either may be dropped: both only wait.
                () = stop.cancelled() => return Ok(()),
                () = keeper.clock.sleep(EVERY) => {}
            }
            tokio::select! {
                // What is half written is found and finished by the next start.
                () = stop.cancelled() => return Ok(()),
                kept = keeper.again(&certificate, &shown) => match kept {
                    Ok(kept) => shown = kept,
                    Err(error) => tracing::warn!(
                        error = format!("{error:#}"),
                        "could not look after the webhook; the next try is in a minute"
                    ),
                },
            }
        }
    });
    Ok(())
}

/// What answers the network: limits first, then the question.
fn answers(
    hooks: AdmissionHooks,
    clock: Clock,
    counters: Counters,
) -> impl Fn(Request<Incoming>, Arc<Peer>) -> Answering + Clone + Send + Sync + 'static {
    let figures = Figures { body: LARGEST, ..Figures::default() };
    let limits = Limits::new(figures, clock, counters, |parts| Class::of_method(&parts.method));
    move |request, _| {
        let (limits, hooks) = (limits.clone(), hooks.clone());
        Box::pin(async move { limits.answer(request, |request| reply(hooks, request)).await })
    }
}

type Answering = std::pin::Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

async fn reply(hooks: AdmissionHooks, request: Request<RequestBody>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let nothing = || plain(StatusCode::NOT_FOUND, "nothing is asked here");
    if !hooks.is_called_at(parts.uri.path()) {
        return nothing();
    }
    if parts.method != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only POST is answered");
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
        Err(error) => plain(StatusCode::BAD_REQUEST, &format!("this is no JSON: {error}")),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut answer = Response::new(gantry_serve::body::full(text.to_owned()));
    *answer.status_mut() = status;
    answer
}

/// Where the API server finds us.
#[derive(Clone, Debug)]
struct Place {
    url: String,
    /// The operator's.
    namespace: String,
    /// What the certificate is for.
    names: Vec<String>,
}

impl Place {
    fn new(url: &str, namespace: String) -> anyhow::Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        let name = match url.is_empty() {
            true => format!("{SERVICE}.{namespace}.svc"),
            false => {
                let uri: Uri = url.parse().with_context(|| format!("cannot use {url:?}"))?;
                let host = uri.host().with_context(|| format!("{url:?} names no host"))?;
                host.trim_matches(['[', ']']).to_owned()
            }
        };
        Ok(Self { url, namespace, names: vec![name] })
    }

    /// How a path is reached.
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

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, namespace, .. } = self;
        match url.is_empty() {
            true => write!(f, "service {namespace}/{SERVICE}"),
            false => f.write_str(url),
        }
    }
}

/// The certificate, and the authority of the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    sealed: Sealed,
    former: String,
}

/// Keeps the certificate and the configurations.
struct Keeper {
    client: kube::Client,
    clock: Clock,
    hooks: AdmissionHooks,
    place: Place,
    /// Who we are to the server: what drivers trust is written by this user alone.
    user: String,
}

/// Asks the server who we are. The user is that of the operator's service account, or of its kubeconfig.
async fn own_user(client: &kube::Client, clock: &Clock) -> anyhow::Result<String> {
    const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), bytes: 1 << 20 };
    let path = ApiPath::from_static("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let kind = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let body = ("application/json", Some(&kind));
    let said = read::send(client, clock, Method::POST, &path, body, BOUNDS).await;
    let said = said.context("could not ask the API server who the operator is")?;
    let user = said["status"]["userInfo"]["username"].as_str();
    Ok(user.context("the API server does not say who the operator is")?.to_owned())
}

impl Keeper {
    /// Looks at everything once more.
    async fn again(&self, certificate: &ServerCertificate, shown: &Kept) -> anyhow::Result<Kept> {
        let kept = self.certificate().await?;
        if kept != *shown {
            certificate.replace(&kept.sealed.identity)?;
        }
        self.announce(&kept).await?;
        Ok(kept)
    }

    /// The certificate in the Secret; one that is not there, or of no use any more, is made.
    async fn certificate(&self) -> anyhow::Result<Kept> {
        let Place { namespace, names, .. } = &self.place;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let asked = |verb| {
            move || Asked {
                verb,
                resource: "secrets",
                name: SECRET.to_owned(),
                namespace: Some(namespace.clone()),
            }
        };
        let mut last = String::new();
        for _ in 0..TRIES {
            let found = call(&self.clock, asked("get"), secrets.get_opt(SECRET)).await?;
            let now = self.clock.now();
            let why = match found.as_ref().map(|it| open(it, names, now)) {
                Some(Ok(kept)) => return Ok(kept),
                Some(Err(why)) => why,
                None => "there is none",
            };
            tracing::info!(secret = format!("{namespace}/{SECRET}"), why, "making a certificate");
            let former = found.as_ref().map(|it| text(it, AUTHORITY)).unwrap_or_default();
            let kept = Kept { sealed: Sealed::create(names, now)?, former };
            let how =
                PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
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
                // Another replica may have been first; then its is there.
                Err(CallError::Refused { says, .. }) => {
                    tracing::info!(says, "somebody else wrote the certificate");
                    last = says;
                }
                Err(error @ (CallError::Forbidden { .. } | CallError::NoAnswer { .. })) => {
                    return Err(error.into());
                }
            }
        }
        anyhow::bail!("could not keep a certificate in Secret {namespace}/{SECRET}: {last}")
    }

    /// Tells the API server whom to ask, about what, and whom to believe.
    async fn announce(&self, kept: &Kept) -> anyhow::Result<()> {
        let authorities = format!("{}{}", kept.sealed.authority, kept.former);
        let client = |path: &str| self.place.client(path, &authorities);
        let caller = HookCaller { client: &client, host: Host::Cluster, user: &self.user };
        for HookConfiguration { manager, configuration } in self.hooks.configurations(&caller) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = text(&configuration["kind"]);
            let name = text(&configuration["metadata"]["name"]);
            let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", &kind);
            let resource = ApiResource::from_gvk(&kind);
            let all = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
            let asked = || Asked {
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

/// The certificate in a Secret.
fn open(secret: &Secret, names: &[String], now: jiff::Timestamp) -> Result<Kept, &'static str> {
    let identity = Identity { certificate: text(secret, CERTIFICATE), key: text(secret, KEY) };
    let sealed = Sealed::open(&text(secret, AUTHORITY), identity, names, now)?;
    Ok(Kept { sealed, former: text(secret, FORMER) })
}

fn text(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    bytes.map(|it| String::from_utf8_lossy(&it.0).into_owned()).unwrap_or_default()
}

fn secret(namespace: &str, kept: &Kept, revision: Option<String>) -> Secret {
    let Kept { sealed: Sealed { authority, identity, .. }, former } = kept;
    let data = [
        (CERTIFICATE, &identity.certificate),
        (KEY, &identity.key),
        (AUTHORITY, authority),
        (FORMER, former),
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
    fn what_is_kept_is_found_again() {
        let place = Place::new("", "gantry-system".to_owned()).unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let sealed = Sealed::create(&place.names, now).unwrap();
        let kept = Kept { sealed, former: "before".to_owned() };
        let secret = secret("gantry-system", &kept, None);
        assert_eq!(open(&secret, &place.names, now), Ok(kept));
        assert!(open(&Secret::default(), &place.names, now).is_err());
    }

    #[test]
    fn the_server_finds_us_where_it_is_told() {
        let inside = Place::new("", "ns".to_owned()).unwrap();
        assert_eq!(inside.names, ["gantry-webhook.ns.svc"]);
        assert_eq!(
            inside.client("/p", "A"),
            json!({
                "service": {"namespace": "ns", "name": "gantry-webhook", "port": 443, "path": "/p"},
                "caBundle": "QQ==",
            })
        );
        let outside = Place::new("https://[::1]:9443/", "ns".to_owned()).unwrap();
        assert_eq!(outside.names, ["::1"]);
        assert_eq!(outside.client("/p", "A")["url"], "https://[::1]:9443/p");
    }
}
