//! Tokens of service accounts: `serviceaccounts/{name}/token`, and the OpenID discovery by which
//! others verify them.

pub(crate) mod secrets;

use std::sync::{Arc, LazyLock};

use gantry_schema::FieldError;
use gantry_token::{ALGORITHM, Claims, KubernetesClaim, Reference, SERVICE_ACCOUNT};
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::{Api, ResourceRequest};
use crate::request::body::Body;
use crate::request::negotiate;
use crate::request::query::WriteOptions;
use crate::resource::rules::WrittenSubresource;
use crate::resource::strategy::strategy;
use crate::resource::{Builtin, KindSource, Resource};
use crate::response::status::StatusError;
use crate::verbs::subresources::{create_options, resource};
use crate::verbs::write::{Write, format_seconds, meta, set_namespace};
use crate::{request::decode, resource::names, response};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// The default lifetime of a token, in seconds.
const DEFAULT_EXPIRATION: i64 = 60 * 60;
/// The shortest lifetime of a token: shorter ones would have to be refreshed all the time.
const MIN_EXPIRATION: i64 = 10 * 60;
/// The longest lifetime that can be requested at all.
const MAX_REQUESTED_EXPIRATION: i64 = 1 << 32;
/// The longest lifetime that is granted; a longer request gets a warning.
const MAX_GRANTED_EXPIRATION: i64 = 24 * 60 * 60;
/// The lifetime that kubelets request on behalf of programs that may read their token only once.
/// Such tokens live for a year, which is harmless: they become invalid with their pod.
const KUBELET_EXPIRATION: i64 = 60 * 60 + 7;
const KUBELET_EXTENDED_EXPIRATION: i64 = 365 * 24 * 60 * 60;

/// The kind of the submitted object, which is not stored and has no path of its own.
static TOKEN_REQUEST_RESOURCE: LazyLock<Option<Arc<Resource>>> = LazyLock::new(|| {
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
        strategy: strategy(GROUP, "tokenrequests"),
        source: KindSource::Builtin(Builtin {
            type_id,
            behaviour: gantry_kinds::behaviour(GROUP, "tokenrequests"),
            empty,
            stored_as: None,
        }),
    }))
});

impl Api {
    /// Issues a token for a service account.
    ///
    /// A dry run issues one as well, as on the real server: nothing is stored either way.
    pub(crate) async fn request_token(
        &self,
        ask: &ResourceRequest,
    ) -> Result<Response<Body>, StatusError> {
        let resource = TOKEN_REQUEST_RESOURCE.as_ref().ok_or_else(StatusError::unknown_resource)?;
        let options = WriteOptions::read(&ask.query, "CreateOptions")?;
        let content = negotiate::content(&ask.headers, false)?;
        let (tree, duplicates) = decode::tree(content, &ask.body, KIND)?;
        let decoded = decode::object(resource, tree, &duplicates, options.validation)?;
        let mut request = decoded.object;
        let mut write = Write::of(ask, &options);
        write.resource = Arc::clone(resource);
        write.subresource = WrittenSubresource::Token;
        write.warnings = decoded.warnings;
        if request["spec"]["expirationSeconds"].is_null() {
            request["spec"]["expirationSeconds"] = json!(DEFAULT_EXPIRATION);
        }
        set_namespace(&write, &mut request)?;
        resource.update_managed_fields(&write, None, &mut request);
        let (said, dry_run) = (create_options(&options), options.dry_run);
        let more = self.review_subresource(ask, "token", &said, dry_run, &mut request).await?;
        write.warnings.extend(more);
        let claims = self.claims(ask, &mut write, &mut request)?;
        let token = self.0.settings.authenticator.key().sign(&claims);
        let token = token.map_err(|fault| StatusError::internal(&fault.to_string()))?;
        let life = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_EXPIRATION);
        request["status"] = json!({
            "token": token, "expirationTimestamp": format_seconds(after(ask.now, life)),
        });
        let document = resource.normalize(request)?;
        let mut response = response::document(StatusCode::CREATED, ask.style, &document);
        response::add_warnings(&mut response, &write.warnings);
        Ok(response)
    }

    /// Builds the claims of the token; completes the request on the way.
    fn claims(
        &self,
        ask: &ResourceRequest,
        write: &mut Write,
        request: &mut Value,
    ) -> Result<Claims, StatusError> {
        let identity = &self.0.settings.authenticator;
        let (namespace, name) = (ask.target.namespace.as_str(), ask.target.name.as_str());
        let said = meta(request, "name");
        if !said.is_empty() && said != name {
            let words = "must match the service account name if specified";
            let fault = FieldError::invalid("metadata.name", &json!(said), words);
            return Err(StatusError::invalid(GROUP, KIND, name, &[fault]));
        }
        let account = self.find(ask)?;
        let uid = account.extra.metadata(&account.value).uid.clone();
        let said = meta(request, "uid");
        if !said.is_empty() && said != uid {
            let why = format!(
                "the UID in the token request ({said}) does not match the UID of the service \
                 account ({uid})"
            );
            return Err(StatusError::conflict(GROUP, KIND, name, &why));
        }
        if request["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
            request["spec"]["audiences"] = json!(identity.audiences());
        }
        request["metadata"]["name"] = json!(name);
        request["metadata"]["uid"] = json!(uid);
        request["metadata"]["creationTimestamp"] = json!(format_seconds(ask.now));
        let life = requested_expiration(request)?;
        let mut about = KubernetesClaim {
            namespace: namespace.to_owned(),
            serviceaccount: Reference { name: name.to_owned(), uid },
            ..KubernetesClaim::default()
        };
        self.bind_token(ask, &request["spec"]["boundObjectRef"], &mut about)?;
        let given = life.min(MAX_GRANTED_EXPIRATION);
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
            && given == KUBELET_EXPIRATION
            && audiences.iter().all(|audience| ours.contains(audience));
        let now = ask.now.as_second();
        about.warnafter = read_once.then_some(now + given);
        Ok(Claims {
            audiences,
            expires: now + if read_once { KUBELET_EXTENDED_EXPIRATION } else { given },
            issued: now,
            issuer: identity.issuer().to_owned(),
            id: names::uid(),
            account: about,
            not_before: now,
            subject: format!("{SERVICE_ACCOUNT}{namespace}:{name}"),
        })
    }

    /// Binds a token to an object.
    fn bind_token(
        &self,
        ask: &ResourceRequest,
        bound_object: &Value,
        about: &mut KubernetesClaim,
    ) -> Result<(), StatusError> {
        if bound_object.is_null() {
            return Ok(());
        }
        let text = |name: &str| bound_object[name].as_str().unwrap_or_default();
        let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let (plural, namespace) = match (group, kind) {
            ("", "Pod") => ("pods", ask.target.namespace.as_str()),
            ("", "Secret") => ("secrets", ask.target.namespace.as_str()),
            ("", "Node") => ("nodes", ""),
            _ => {
                let kind = format!("{group}/{version}, Kind={kind}");
                let words = format!("cannot bind token to object of type {kind}");
                return Err(StatusError::bad_request(words));
            }
        };
        let (object, bound) = self
            .bindable(plural, namespace, name)
            .ok_or_else(|| StatusError::not_found("", plural, name))?;
        if kind == "Pod" && object["spec"]["serviceAccountName"] != ask.target.name {
            let account = &ask.target.name;
            return Err(StatusError::bad_request(format!(
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
            return Err(StatusError::conflict("", kind, name, &why));
        }
        match kind {
            "Pod" => {
                let node = object["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
                // The name is included even if the node does not exist.
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
        let object = resource.tree(&*self.stored_entry(&resource, namespace, name)?);
        let uid = meta(&object, "uid").to_owned();
        Some((object, Reference { name: name.to_owned(), uid }))
    }
}

/// Returns the lifetime of the token.
fn requested_expiration(request: &Value) -> Result<i64, StatusError> {
    let requested = &request["spec"]["expirationSeconds"];
    let life = requested.as_i64().unwrap_or(DEFAULT_EXPIRATION);
    let words = match life {
        ..MIN_EXPIRATION => "may not specify a duration less than 10 minutes",
        MIN_EXPIRATION..=MAX_REQUESTED_EXPIRATION => return Ok(life),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let fault = FieldError::invalid("spec.expirationSeconds", requested, words);
    Err(StatusError::invalid(GROUP, KIND, "", &[fault]))
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// `/.well-known/openid-configuration`: where and how tokens of this server are verified.
pub(crate) fn openid_configuration(api: &Api) -> Value {
    let identity = &api.0.settings.authenticator;
    json!({
        "issuer": identity.issuer(),
        "jwks_uri": format!("https://{}/openid/v1/jwks", api.address()),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    })
}

/// Makes a response that may be cached for an hour.
pub(crate) fn cacheable_document(content_type: &'static str, document: &Value) -> Response<Body> {
    let mut response =
        response::bytes(StatusCode::OK, content_type, document.to_string().into_bytes().into());
    let value = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(CACHE_CONTROL, value);
    response
}
