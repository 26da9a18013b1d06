//! Tokens that service accounts ask for: `serviceaccounts/{name}/token`, and where others learn to
//! check them.

pub(crate) mod secrets;

use std::sync::{Arc, LazyLock};

use gantry_schema::Invalid;
use gantry_token::{ALGORITHM, Account, Claims, Reference, SERVICE_ACCOUNT};
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{Api, Ask};
use crate::body::Body;
use crate::negotiate;
use crate::parts::{create_options, resource};
use crate::query::WriteOptions;
use crate::resource::{Builtin, Nature, Resource};
use crate::rules::Part;
use crate::status::Refusal;
use crate::write::{Write, meta, seconds, settle_namespace};
use crate::{answer, decode, names};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// How long a token is good if nothing is said, in seconds.
const USUAL: i64 = 60 * 60;
/// The shortest life of a token: shorter ones would have to be fetched all the time.
const SHORTEST: i64 = 10 * 60;
/// The longest life that can be asked for at all.
const LONGEST: i64 = 1 << 32;
/// The longest life that is given; whoever asks for more is told.
const GIVEN: i64 = 24 * 60 * 60;
/// What kubelets ask for on behalf of programs that may read their token only once. Such tokens live
/// for a year, which is harmless: they end with their pod.
const READ_ONCE: i64 = 60 * 60 + 7;
const READ_ONCE_LIFE: i64 = 365 * 24 * 60 * 60;

/// The kind of what is sent, which is stored nowhere and has no path of its own.
static REQUESTS: LazyLock<Option<Arc<Resource>>> = LazyLock::new(|| {
    let type_id = gantry_builtin::kind_type(GROUP, "v1", KIND)?;
    let empty = json!({ "kind": KIND, "apiVersion": format!("{GROUP}/v1") });
    let empty = gantry_builtin::read(type_id, empty).map(|read| read.value).unwrap_or_default();
    Some(Arc::new(Resource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        plural: "tokenrequests".to_owned(),
        singular: String::new(),
        kind: KIND.to_owned(),
        list_kind: String::new(),
        namespaced: true,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: Vec::new(),
        subresources: Vec::new(),
        storage_version_hash: String::new(),
        space: String::new(),
        nature: Nature::Builtin(Builtin {
            type_id,
            behaviour: gantry_kinds::behaviour(GROUP, "tokenrequests"),
            empty,
            stored_as: None,
        }),
    }))
});

impl Api {
    /// Makes a token for a service account.
    ///
    /// A dry run makes one as well, as on the real server: nothing is stored either way.
    pub(crate) async fn request_token(&self, ask: &Ask) -> Result<Response<Body>, Refusal> {
        let resource = REQUESTS.as_ref().ok_or_else(Refusal::unknown_resource)?;
        let options = WriteOptions::read(&ask.query, "CreateOptions")?;
        let content = negotiate::content(&ask.headers, false)?;
        let (tree, duplicates) = decode::tree(content, &ask.body, KIND)?;
        let decoded = decode::object(resource, tree, &duplicates, options.validation)?;
        let mut request = decoded.object;
        let mut write = Write::of(ask, &options);
        write.resource = Arc::clone(resource);
        write.part = Part::Token;
        write.warnings = decoded.warnings;
        if request["spec"]["expirationSeconds"].is_null() {
            request["spec"]["expirationSeconds"] = json!(USUAL);
        }
        settle_namespace(&write, &mut request)?;
        resource.own(&write, None, &mut request);
        let (said, dry_run) = (create_options(&options), options.dry_run);
        let more = self.review_part(ask, "token", &said, dry_run, &mut request).await?;
        write.warnings.extend(more);
        let claims = self.claims(ask, &mut write, &mut request)?;
        let token = self.0.settings.identity.key().sign(&claims);
        let token = token.map_err(|fault| Refusal::internal(&fault.to_string()))?;
        let life = request["spec"]["expirationSeconds"].as_i64().unwrap_or(USUAL);
        request["status"] = json!({
            "token": token, "expirationTimestamp": seconds(after(ask.now, life)),
        });
        let document = resource.normal(request)?;
        let mut response = answer::document(StatusCode::CREATED, ask.style, &document);
        answer::warn(&mut response, &write.warnings);
        Ok(response)
    }

    /// What the token is to say; completes the request on the way.
    fn claims(&self, ask: &Ask, write: &mut Write, request: &mut Value) -> Result<Claims, Refusal> {
        let identity = &self.0.settings.identity;
        let (namespace, name) = (ask.target.namespace.as_str(), ask.target.name.as_str());
        let said = meta(request, "name");
        if !said.is_empty() && said != name {
            let words = "must match the service account name if specified";
            let fault = Invalid::value("metadata.name", &json!(said), words);
            return Err(Refusal::invalid(GROUP, KIND, name, &[fault]));
        }
        let account = self.find(ask)?;
        let uid = account.extra.metadata(&account.value).uid.clone();
        let said = meta(request, "uid");
        if !said.is_empty() && said != uid {
            let why = format!(
                "the UID in the token request ({said}) does not match the UID of the service \
                 account ({uid})"
            );
            return Err(Refusal::conflict(GROUP, KIND, name, &why));
        }
        if request["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
            request["spec"]["audiences"] = json!(identity.audiences());
        }
        request["metadata"]["name"] = json!(name);
        request["metadata"]["uid"] = json!(uid);
        request["metadata"]["creationTimestamp"] = json!(seconds(ask.now));
        let life = life(request)?;
        let mut about = Account {
            namespace: namespace.to_owned(),
            serviceaccount: Reference { name: name.to_owned(), uid },
            ..Account::default()
        };
        self.bind_token(ask, &request["spec"]["boundObjectRef"], &mut about)?;
        let given = life.min(GIVEN);
        if given < life {
            let words =
                format!("requested expiration of {life} seconds shortened to {given} seconds");
            write.warnings.push(words);
            request["spec"]["expirationSeconds"] = json!(given);
        }
        let texts = request["spec"]["audiences"].as_array().into_iter().flatten();
        let audiences: Vec<String> = texts.filter_map(Value::as_str).map(str::to_owned).collect();
        let ours = identity.audiences();
        let read_once = about.pod.is_some()
            && given == READ_ONCE
            && audiences.iter().all(|audience| ours.contains(audience));
        let now = ask.now.as_second();
        about.warnafter = read_once.then_some(now + given);
        Ok(Claims {
            audiences,
            expires: now + if read_once { READ_ONCE_LIFE } else { given },
            issued: now,
            issuer: identity.issuer().to_owned(),
            id: names::uid(),
            account: about,
            not_before: now,
            subject: format!("{SERVICE_ACCOUNT}{namespace}:{name}"),
        })
    }

    /// Ties a token to the object it is to end with.
    fn bind_token(&self, ask: &Ask, wish: &Value, about: &mut Account) -> Result<(), Refusal> {
        if wish.is_null() {
            return Ok(());
        }
        let text = |name: &str| wish[name].as_str().unwrap_or_default();
        let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let (plural, namespace) = match (group, kind) {
            ("", "Pod") => ("pods", ask.target.namespace.as_str()),
            ("", "Secret") => ("secrets", ask.target.namespace.as_str()),
            ("", "Node") => ("nodes", ""),
            _ => {
                let kind = format!("{group}/{version}, Kind={kind}");
                let words = format!("cannot bind token to object of type {kind}");
                return Err(Refusal::bad_request(words));
            }
        };
        let (object, bound) = self
            .bindable(plural, namespace, name)
            .ok_or_else(|| Refusal::not_found("", plural, name))?;
        if kind == "Pod" && object["spec"]["serviceAccountName"] != ask.target.name {
            let account = &ask.target.name;
            return Err(Refusal::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different \
                 serviceaccount name."
            )));
        }
        let claimed = text("uid");
        if !claimed.is_empty() && claimed != bound.uid {
            let why = format!(
                "the UID in the bound object reference ({claimed}) does not match the UID in \
                 record. The object might have been deleted and then recreated"
            );
            return Err(Refusal::conflict("", kind, name, &why));
        }
        match kind {
            "Pod" => {
                let node = object["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
                // The name is worth knowing even if the node is not.
                about.node = node.map(|node| {
                    let known = self.bindable("nodes", "", node).map(|(_, node)| node);
                    known.unwrap_or_else(|| Reference { name: node.to_owned(), uid: String::new() })
                });
                about.pod = Some(bound);
            }
            "Secret" => about.secret = Some(bound),
            _ => about.node = Some(bound),
        }
        Ok(())
    }

    fn bindable(&self, plural: &str, namespace: &str, name: &str) -> Option<(Value, Reference)> {
        let resource = resource(self, "", "v1", plural)?;
        let object = resource.tree(&*self.stored(&resource, namespace, name)?);
        let uid = meta(&object, "uid").to_owned();
        Some((object, Reference { name: name.to_owned(), uid }))
    }
}

/// How long the token is to be good.
fn life(request: &Value) -> Result<i64, Refusal> {
    let wish = &request["spec"]["expirationSeconds"];
    let life = wish.as_i64().unwrap_or(USUAL);
    let words = match life {
        ..SHORTEST => "may not specify a duration less than 10 minutes",
        SHORTEST..=LONGEST => return Ok(life),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let fault = Invalid::value("spec.expirationSeconds", wish, words);
    Err(Refusal::invalid(GROUP, KIND, "", &[fault]))
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// `/.well-known/openid-configuration`: where and how tokens of this server are checked.
pub(crate) fn configuration(api: &Api) -> Value {
    let identity = &api.0.settings.identity;
    json!({
        "issuer": identity.issuer(),
        "jwks_uri": format!("https://{}/openid/v1/jwks", api.address()),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    })
}

/// A document that others may keep for an hour.
pub(crate) fn published(content_type: &'static str, document: &Value) -> Response<Body> {
    let mut response =
        answer::bytes(StatusCode::OK, content_type, document.to_string().into_bytes().into());
    let value = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(CACHE_CONTROL, value);
    response
}
