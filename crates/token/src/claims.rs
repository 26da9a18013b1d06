//! Claims of a token about its bearer, and the checks whether they still hold.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The prefix of the user names of all service accounts.
pub const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The largest clock difference that is tolerated; also how long an object with a deletion
/// timestamp still counts as present, unless it is gone.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);

/// The claims of a token. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The audiences of the token.
    #[serde(rename = "aud")]
    pub audiences: Vec<String>,
    /// When the token expires.
    #[serde(rename = "exp")]
    pub expires: i64,
    /// When the token was issued.
    #[serde(rename = "iat")]
    pub issued: i64,
    /// The issuer.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// The ID of the token.
    #[serde(rename = "jti")]
    pub id: String,
    /// The service account and what the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub account: KubernetesClaim,
    /// From when on the token is valid.
    #[serde(rename = "nbf")]
    pub not_before: i64,
    /// The user name of the bearer.
    #[serde(rename = "sub")]
    pub subject: String,
}

/// The Kubernetes-specific claims of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesClaim {
    /// The namespace of the service account.
    pub namespace: String,
    /// The node of the pod, or the node it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The pod it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The secret it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The service account.
    pub serviceaccount: Reference,
    /// When the bearer should have refreshed the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// An object by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The name.
    pub name: String,
    /// The UID; only that of a pod's node may be unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The kinds of objects a token depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferencedKind {
    /// The service account itself.
    ServiceAccount,
    /// A pod.
    Pod,
    /// A secret.
    Secret,
    /// A node.
    Node,
}

impl ReferencedKind {
    /// Returns the name of the kind in messages.
    fn word(self) -> &'static str {
        match self {
            Self::ServiceAccount => "service account",
            Self::Pod => "pod",
            Self::Secret => "secret",
            Self::Node => "node",
        }
    }
}

/// The stored state of an object that a token depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Its UID.
    pub uid: String,
    /// Its deletion timestamp, if it is being deleted.
    pub deletion_timestamp: Option<Timestamp>,
}

/// The user that a valid token authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The name.
    pub name: String,
    /// The UID of the service account.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Extra attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
    /// The audiences of the token that are among the requested ones.
    pub audiences: Vec<String>,
}

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not a token of this issuer.
    #[error("invalid bearer token")]
    OtherIssuer,
    /// It names another key.
    #[error("invalid signature, no keys found")]
    UnknownKey,
    /// Its signature is not by this key.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// It is for other audiences.
    #[error(
        "token audiences {} is invalid for the target audiences {}",
        go_list(.token),
        go_list(.asked)
    )]
    Audience {
        /// The audiences of the token.
        token: Vec<String>,
        /// The requested audiences.
        asked: Vec<String>,
    },
    /// It has expired.
    #[error("service account token has expired")]
    Expired,
    /// It is not valid yet.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// It was issued in the future.
    #[error("service account token is issued in the future")]
    IssuedInFuture,
    /// The service account does not exist any more.
    #[error("serviceaccounts {name:?} not found")]
    AccountNotFound {
        /// Its name.
        name: String,
    },
    /// The service account is being deleted.
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// An object that the token is bound to does not exist any more.
    #[error("service account token has been invalidated")]
    BoundObjectDeleted,
    /// Another service account has the name now.
    #[error("service account UID ({stored}) does not match claim ({claimed})")]
    AccountReplaced {
        /// The UID of the stored object.
        stored: String,
        /// The UID in the token.
        claimed: String,
    },
    /// Another object has the name of the bound object.
    #[error(
        "{} UID ({stored}) does not match service account {} ref claim ({claimed})",
        kind.word(), kind.word()
    )]
    BoundObjectReplaced {
        /// The kind of the bound object.
        kind: ReferencedKind,
        /// The UID of the stored object.
        stored: String,
        /// The UID in the token.
        claimed: String,
    },
    /// A claim is missing in a token of a Secret.
    #[error("{claim} claim is missing")]
    MissingClaim {
        /// The missing claim.
        claim: &'static str,
    },
    /// A token of a Secret has claims about another service account than its subject.
    #[error("sub claim is invalid")]
    SubjectMismatch,
    /// The Secret of the token is deleted or being deleted.
    #[error("Token has been invalidated")]
    SecretDeleted,
    /// The Secret holds another token now.
    #[error("Token does not match server's copy")]
    TokenMismatch,
    /// The service account of a Secret's token is being deleted.
    #[error("ServiceAccount {namespace}/{name} has been deleted")]
    SecretAccountDeleted {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Another service account has the name now.
    #[error("ServiceAccount UID ({stored}) does not match claim ({claimed})")]
    SecretAccountReplaced {
        /// The UID of the stored object.
        stored: String,
        /// The UID in the token.
        claimed: String,
    },
    /// The Secret of the token is marked as invalid.
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{account} has \
         been marked invalid. Use tokens from the TokenRequest API or manually created \
         secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from \
         the secret to temporarily allow use of this token"
    )]
    MarkedInvalid {
        /// The namespace of both.
        namespace: String,
        /// The Secret.
        secret: String,
        /// The service account.
        account: String,
    },
}

/// Formats a list as Go does.
fn go_list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

impl Claims {
    /// Returns the bearer, if every claim of the token is true at `now`.
    ///
    /// `asked` are the requested audiences, of which the token must have at least one; `find` looks
    /// up stored objects by kind, namespace and name.
    ///
    /// # Errors
    /// The first claim that is not true.
    pub fn check(
        &self,
        now: Timestamp,
        asked: &[String],
        find: impl Fn(ReferencedKind, &str, &str) -> Option<StoredObject>,
    ) -> Result<Bearer, TokenError> {
        let meant = asked.iter().filter(|audience| self.audiences.contains(audience));
        let audiences: Vec<String> = meant.cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError::Audience {
                token: self.audiences.clone(),
                asked: asked.to_vec(),
            });
        }
        self.check_times(now)?;
        // An object deleted longer ago than this counts as absent, even if a finalizer still holds
        // it.
        let since = now.checked_sub(LEEWAY).unwrap_or(Timestamp::MIN);
        let KubernetesClaim { namespace, node, pod, secret, serviceaccount, warnafter: _ } =
            &self.account;
        let name = &serviceaccount.name;
        let known = find(ReferencedKind::ServiceAccount, namespace, name)
            .ok_or_else(|| TokenError::AccountNotFound { name: name.clone() })?;
        if known.uid != serviceaccount.uid {
            let (stored, claimed) = (known.uid, serviceaccount.uid.clone());
            return Err(TokenError::AccountReplaced { stored, claimed });
        }
        if known.deletion_timestamp.is_some_and(|deleted| deleted < since) {
            let (namespace, name) = (namespace.clone(), name.clone());
            return Err(TokenError::AccountDeleted { namespace, name });
        }
        // For a pod-bound token the node is only information.
        let bound_node = node.as_ref().filter(|_| pod.is_none());
        let bound = [
            (ReferencedKind::Secret, namespace.as_str(), secret.as_ref()),
            (ReferencedKind::Pod, namespace.as_str(), pod.as_ref()),
            (ReferencedKind::Node, "", bound_node),
        ];
        for (kind, namespace, reference) in bound {
            let Some(Reference { name, uid }) = reference else { continue };
            let known = find(kind, namespace, name).ok_or(TokenError::BoundObjectDeleted)?;
            if known.uid != *uid {
                return Err(TokenError::BoundObjectReplaced {
                    kind,
                    stored: known.uid,
                    claimed: uid.clone(),
                });
            }
            if known.deletion_timestamp.is_some_and(|deleted| deleted < since) {
                return Err(TokenError::BoundObjectDeleted);
            }
        }
        Ok(Bearer {
            name: format!("{SERVICE_ACCOUNT}{namespace}:{name}"),
            uid: serviceaccount.uid.clone(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
            extra: self.extra(),
            audiences,
        })
    }

    fn check_times(&self, now: Timestamp) -> Result<(), TokenError> {
        let early = now.checked_sub(LEEWAY).unwrap_or(Timestamp::MIN);
        let late = now.checked_add(LEEWAY).unwrap_or(Timestamp::MAX);
        // A time out of range lies before or after all others.
        let moment = |second: i64| {
            let end = if second < 0 { Timestamp::MIN } else { Timestamp::MAX };
            Timestamp::from_second(second).unwrap_or(end)
        };
        if late < moment(self.not_before) {
            return Err(TokenError::NotYetValid);
        }
        if early > moment(self.expires) {
            return Err(TokenError::Expired);
        }
        if late < moment(self.issued) {
            return Err(TokenError::IssuedInFuture);
        }
        Ok(())
    }

    fn extra(&self) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::new();
        let mut put = |key: &str, value: String| {
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
        };
        put("credential-id", format!("JTI={}", self.id));
        if let Some(Reference { name, uid }) = &self.account.pod {
            put("pod-name", name.clone());
            put("pod-uid", uid.clone());
        }
        if let Some(Reference { name, uid }) = &self.account.node {
            put("node-name", name.clone());
            if !uid.is_empty() {
                put("node-uid", uid.clone());
            }
        }
        extra
    }
}

#[cfg(test)]
mod tests;
