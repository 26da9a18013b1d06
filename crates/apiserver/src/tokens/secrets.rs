//! Secrets of type `kubernetes.io/service-account-token`: the token controller.
//!
//! A Secret of this type names a service account in an annotation. While the account is there, the
//! Secret gets a token of it, the server's root certificates and the name of its namespace; a Secret
//! whose account is not there, or is there under another uid, is deleted. Whether the account is there
//! is looked up in the store at the moment of the decision, so a Secret that is made right after its
//! account is never taken for a stray one.

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
use crate::delete::{DeleteOptions, Propagation, Removal};
use crate::parts::resource;
use crate::resource::Resource;
use crate::rules::Part;
use crate::status::Refusal;
use crate::stored::Metadata;
use crate::write::{Changed, Write, meta};

const SECRETS: &str = "secrets";
const ACCOUNTS: &str = "serviceaccounts";
/// The type of Secrets that hold a token.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// The annotation that names the account.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// The annotation with the account's uid.
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The label of a Secret whose token is not to be believed.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The user the token controller of Kubernetes acts as.
const ACTOR: &str = "system:kube-controller-manager";
/// How often a Secret that cannot be written is tried before its next change is waited for.
const MAX_RETRIES: u32 = 10;
/// Between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The Secrets to look at, by namespace and name, with how often that failed.
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

    fn take(&self) -> Option<((String, String), u32)> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }
}

impl Api {
    /// Takes note of a stored object that may be a Secret to fill in.
    pub(crate) fn token_secret_stored(&self, resource: &Resource, object: &Value) {
        if self.0.settings.token_secrets && resource.space == SECRETS && is_token_secret(object) {
            self.0.token_secrets.enqueue(meta(object, "namespace"), meta(object, "name"), 0);
        }
    }

    /// Takes note that an account may be gone: the Secrets with its tokens are looked at.
    pub(crate) fn token_account_removed(&self, resource: &Resource, metadata: &Metadata) {
        if self.0.settings.token_secrets && resource.space == ACCOUNTS {
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

    /// Fills in and removes Secrets until told to stop.
    pub(crate) async fn keep_token_secrets(self, stop: CancellationToken) {
        for secret in self.token_secrets_in("") {
            self.0.token_secrets.enqueue(meta(&secret, "namespace"), meta(&secret, "name"), 0);
        }
        loop {
            while let Some(((namespace, name), failures)) = self.0.token_secrets.take() {
                if stop.is_cancelled() {
                    return;
                }
                let Err(refusal) = self.settle_token_secret(&namespace, &name).await else {
                    continue;
                };
                if failures >= MAX_RETRIES {
                    let refusal = refusal.message;
                    tracing::warn!(namespace, name, refusal, "no token is put into a Secret");
                    continue;
                }
                self.0.token_secrets.enqueue(&namespace, &name, failures + 1);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.0.clock.sleep(RETRY_DELAY) => {}
                }
            }
            // Both may be dropped: a wake-up that is missed here is kept by `Notify`.
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.token_secrets.notify.notified() => {}
            }
        }
    }

    async fn settle_token_secret(&self, namespace: &str, name: &str) -> Result<(), Refusal> {
        let Some(secret) = self.look("", "v1", SECRETS, namespace, name) else { return Ok(()) };
        let account_name = annotation(&secret, ACCOUNT_NAME);
        if !is_token_secret(&secret)
            || account_name.is_empty()
            || secret["metadata"]["deletionTimestamp"].is_string()
        {
            return Ok(());
        }
        let account = self.look("", "v1", ACCOUNTS, namespace, account_name);
        let claimed = annotation(&secret, ACCOUNT_UID);
        let account =
            account.filter(|account| claimed.is_empty() || claimed == meta(account, "uid"));
        let done = match account {
            None => self.remove_token_secret(&secret).await,
            Some(account) => self.fill_token_secret(&secret, &account).await,
        };
        match done {
            // It went meanwhile, or another has its name now.
            Err(refusal) if matches!(refusal.reason, "NotFound" | "Conflict") => Ok(()),
            other => other,
        }
    }

    async fn remove_token_secret(&self, secret: &Value) -> Result<(), Refusal> {
        let Some(secrets) = resource(self, "", "v1", SECRETS) else { return Ok(()) };
        let options = DeleteOptions::exactly(meta(secret, "uid"), Propagation::Background);
        let caller = Caller::authenticated(ACTOR, &[]);
        let mut removal = Removal {
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

    async fn fill_token_secret(&self, secret: &Value, account: &Value) -> Result<(), Refusal> {
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
            ..self.own_write(&secrets, &metadata, Part::Whole)
        };
        let revision = meta(secret, "resourceVersion").to_owned();
        let (uid, name) = (meta(account, "uid"), meta(account, "name"));
        let written = self.modify(&mut write, |_, write, live| {
            let mut new = live.clone();
            // Whoever was in between has it looked at again.
            if meta(live, "resourceVersion") == revision {
                for (key, value) in &missing {
                    new["data"][key] = json!(value);
                }
                new["metadata"]["annotations"][ACCOUNT_NAME] = json!(name);
                new["metadata"]["annotations"][ACCOUNT_UID] = json!(uid);
                write.resource.own(write, Some(live), &mut new);
            }
            Ok(Changed::to(new))
        });
        Box::pin(written).await.map(drop)
    }

    /// What a Secret lacks, in base64; nothing if it is complete.
    fn missing_data(
        &self,
        secret: &Value,
        account: &Value,
    ) -> Result<Option<BTreeMap<&'static str, String>>, Refusal> {
        let stored = |key: &str| secret["data"][key].as_str().unwrap_or_default();
        let mut missing = BTreeMap::new();
        let root = STANDARD.encode(&self.0.settings.authority);
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
            let token = self.0.settings.identity.key().sign_legacy(&claims);
            let token = token.map_err(|fault| Refusal::internal(&fault.to_string()))?;
            missing.insert("token", STANDARD.encode(token));
        }
        Ok(Some(missing).filter(|missing| !missing.is_empty()))
    }

    /// What is stored of a Secret on which a token depends.
    pub(crate) fn token_secret(&self, namespace: &str, name: &str) -> Option<StoredSecret> {
        let secret = self.look("", "v1", SECRETS, namespace, name)?;
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
