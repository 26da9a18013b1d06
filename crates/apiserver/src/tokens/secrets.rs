//! Secrets of type `kubernetes.io/service-account-token`: the token controller.
//!
//! A Secret of this type names a service account in an annotation. While the account exists, the
//! Secret gets a token for it, the server's root certificates and the name of its namespace; a
//! Secret whose account does not exist, or exists with another UID, is deleted. Whether the account
//! exists is looked up in the store at the moment of the decision, so a Secret that is created
//! right after its account is never deleted by mistake.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_token::{LegacyClaims, StoredSecret};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::api::Api;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::Metadata;
use crate::response::status::StatusError;
use crate::verbs::delete::{DeleteOptions, DeletionRequest, Propagation};
use crate::verbs::subresources::resource;
use crate::verbs::write::{ModifiedObject, Write, meta};

const SECRETS: &str = "secrets";
const ACCOUNTS: &str = "serviceaccounts";
/// The type of Secrets that hold a token.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// The annotation that names the service account.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// The annotation with the account's UID.
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The label of a Secret whose token is invalid.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The user the token controller of Kubernetes acts as.
const ACTOR: &str = "system:kube-controller-manager";
/// How often the write of a Secret is retried before its next change is awaited.
const MAX_RETRIES: u32 = 10;
/// The delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The Secrets to process, by namespace and name, with the number of failures.
#[derive(Debug, Default)]
pub(crate) struct TokenSecrets {
    pending: Mutex<BTreeMap<(String, String), u32>>,
    notify: Notify,
}

impl TokenSecrets {
    fn enqueue(&self, namespace: &str, name: &str, failures: u32) {
        let key = (namespace.to_owned(), name.to_owned());
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(key, failures);
        self.notify.notify_one();
    }

    fn pop(&self) -> Option<((String, String), u32)> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }
}

impl Api {
    /// Observes a stored Secret, which may be one to fill in.
    pub(crate) fn token_secret_stored(&self, secret: &Value) {
        if self.0.settings.token_secrets && is_token_secret(secret) {
            self.0.token_secrets.enqueue(meta(secret, "namespace"), meta(secret, "name"), 0);
        }
    }

    /// Observes that an account is deleted: the Secrets with its tokens are enqueued.
    pub(crate) fn token_account_removed(&self, metadata: &Metadata) {
        if self.0.settings.token_secrets {
            for secret in self.token_secrets_in(&format!("{}/", metadata.namespace)) {
                if annotation(&secret, ACCOUNT_NAME) == metadata.name {
                    let (namespace, name) = (meta(&secret, "namespace"), meta(&secret, "name"));
                    self.0.token_secrets.enqueue(namespace, name, 0);
                }
            }
        }
    }

    fn token_secrets_in(&self, prefix: &str) -> Vec<Value> {
        let Some(secrets) = resource(self, "", "v1", SECRETS) else { return Vec::new() };
        let space = self.0.store.space(&secrets.space);
        let from = std::ops::Bound::Included(prefix.as_bytes());
        let below = space.range(from).take_while(|it| it.key.starts_with(prefix.as_bytes()));
        below.map(|entry| secrets.tree(entry)).filter(is_token_secret).collect()
    }

    /// Fills in and deletes Secrets until it is stopped.
    pub(crate) async fn run_token_controller(self, stop: CancellationToken) {
        for secret in self.token_secrets_in("") {
            self.0.token_secrets.enqueue(meta(&secret, "namespace"), meta(&secret, "name"), 0);
        }
        loop {
            while let Some(((namespace, name), failures)) = self.0.token_secrets.pop() {
                if stop.is_cancelled() {
                    return;
                }
                let Err(refusal) = self.reconcile_token_secret(&namespace, &name).await else {
                    continue;
                };
                if failures >= MAX_RETRIES {
                    let refusal = refusal.message;
                    tracing::warn!(namespace, name, refusal, "could not fill in a token Secret");
                    continue;
                }
                self.0.token_secrets.enqueue(&namespace, &name, failures + 1);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.0.clock.sleep(RETRY_DELAY) => {}
                }
            }
            // Cancel-safe: a missed wake-up is kept by `Notify`.
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.token_secrets.notify.notified() => {}
            }
        }
    }

    async fn reconcile_token_secret(&self, namespace: &str, name: &str) -> Result<(), StatusError> {
        let Some(secret) = self.stored_value("", "v1", SECRETS, namespace, name) else {
            return Ok(());
        };
        let account_name = annotation(&secret, ACCOUNT_NAME);
        if !is_token_secret(&secret)
            || account_name.is_empty()
            || secret["metadata"]["deletionTimestamp"].is_string()
        {
            return Ok(());
        }
        let account = self.stored_value("", "v1", ACCOUNTS, namespace, account_name);
        let claimed = annotation(&secret, ACCOUNT_UID);
        let account =
            account.filter(|account| claimed.is_empty() || claimed == meta(account, "uid"));
        let done = match account {
            None => self.remove_token_secret(&secret).await,
            Some(account) => self.fill_token_secret(&secret, &account).await,
        };
        match done {
            // It was deleted meanwhile, or another has its name now.
            Err(refusal) if matches!(refusal.reason, "NotFound" | "Conflict") => Ok(()),
            other => other,
        }
    }

    async fn remove_token_secret(&self, secret: &Value) -> Result<(), StatusError> {
        let Some(secrets) = resource(self, "", "v1", SECRETS) else { return Ok(()) };
        let options = DeleteOptions::for_uid(meta(secret, "uid"), Propagation::Background);
        let caller = Caller::authenticated(ACTOR, &[]);
        let mut removal = DeletionRequest {
            resource: &secrets,
            namespace: meta(secret, "namespace"),
            name: meta(secret, "name"),
            options: &options,
            caller: Some(&caller),
            now: self.now(),
            warnings: Vec::new(),
        };
        self.delete_object(&mut removal).await.map(drop)
    }

    async fn fill_token_secret(&self, secret: &Value, account: &Value) -> Result<(), StatusError> {
        let Some(secrets) = resource(self, "", "v1", SECRETS) else { return Ok(()) };
        let Some(missing) = self.missing_data(secret, account)? else { return Ok(()) };
        let metadata = Metadata {
            name: meta(secret, "name").to_owned(),
            namespace: meta(secret, "namespace").to_owned(),
            ..Metadata::default()
        };
        let mut write = Write {
            manager: "kube-controller-manager".to_owned(),
            caller: Caller::authenticated(ACTOR, &[]),
            ..self.server_write(&secrets, &metadata, WrittenSubresource::Main)
        };
        let revision = meta(secret, "resourceVersion").to_owned();
        let (uid, name) = (meta(account, "uid"), meta(account, "name"));
        let written = self.modify(&mut write, |_, write, live| {
            let mut new = live.clone();
            // A conflicting write enqueues it again.
            if meta(live, "resourceVersion") == revision {
                for (key, value) in &missing {
                    new["data"][key] = json!(value);
                }
                new["metadata"]["annotations"][ACCOUNT_NAME] = json!(name);
                new["metadata"]["annotations"][ACCOUNT_UID] = json!(uid);
                write.resource.update_managed_fields(write, Some(live), &mut new);
            }
            Ok(ModifiedObject::new(new))
        });
        Box::pin(written).await.map(drop)
    }

    /// Returns what a Secret lacks, in base64; `None` if it is complete.
    fn missing_data(
        &self,
        secret: &Value,
        account: &Value,
    ) -> Result<Option<BTreeMap<&'static str, String>>, StatusError> {
        let stored = |key: &str| secret["data"][key].as_str().unwrap_or_default();
        let mut missing = BTreeMap::new();
        let root = STANDARD.encode(&self.0.settings.ca_certificate);
        if !root.is_empty() && stored("ca.crt") != root {
            missing.insert("ca.crt", root);
        }
        let namespace = meta(secret, "namespace");
        if stored("namespace").is_empty() {
            missing.insert("namespace", STANDARD.encode(namespace));
        }
        if stored("token").is_empty() {
            let (account, uid) = (meta(account, "name"), meta(account, "uid"));
            let claims = LegacyClaims::new(namespace, account, uid, meta(secret, "name"));
            let token = self.0.settings.authenticator.key().sign_legacy(&claims);
            let token = token.map_err(|fault| StatusError::internal(&fault.to_string()))?;
            missing.insert("token", STANDARD.encode(token));
        }
        Ok(Some(missing).filter(|missing| !missing.is_empty()))
    }

    /// Returns the stored state of a Secret on which a token depends.
    pub(crate) fn token_secret(&self, namespace: &str, name: &str) -> Option<StoredSecret> {
        let secret = self.stored_value("", "v1", SECRETS, namespace, name)?;
        let token = secret["data"]["token"].as_str().unwrap_or_default();
        Some(StoredSecret {
            token: STANDARD.decode(token).unwrap_or_default(),
            deleted: secret["metadata"]["deletionTimestamp"].is_string(),
            marked_invalid: !label(&secret, INVALID_SINCE).is_empty(),
        })
    }
}

fn is_token_secret(object: &Value) -> bool {
    object["type"] == TOKEN_TYPE
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["labels"][name].as_str().unwrap_or_default()
}
