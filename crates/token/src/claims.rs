//! What a token says about its bearer, and whether it still holds.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// What the names of all service accounts begin with.
pub const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Clocks differ by this much at most; also how long what was deleted is still taken for there,
/// unless it is gone.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);

/// What a token says. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// For whom it is meant.
    #[serde(rename = "aud")]
    pub audiences: Vec<String>,
    /// When it ends.
    #[serde(rename = "exp")]
    pub expires: i64,
    /// When it was made.
    #[serde(rename = "iat")]
    pub issued: i64,
    /// Who made it.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// Its own identity.
    #[serde(rename = "jti")]
    pub id: String,
    /// The account and what the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub account: Account,
    /// From when on it is good.
    #[serde(rename = "nbf")]
    pub not_before: i64,
    /// The name of the bearer.
    #[serde(rename = "sub")]
    pub subject: String,
}

/// Whom a token is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Where the account is.
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
    /// The account.
    pub serviceaccount: Reference,
    /// When its bearer should have fetched another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// An object by name and identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The name.
    pub name: String,
    /// The identity; only that of a pod's node may be unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The kinds of objects a token depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The account itself.
    ServiceAccount,
    /// A pod.
    Pod,
    /// A secret.
    Secret,
    /// A node.
    Node,
}

impl Kind {
    /// Its name in messages.
    fn word(self) -> &'static str {
        match self {
            Self::ServiceAccount => "service account",
            Self::Pod => "pod",
            Self::Secret => "secret",
            Self::Node => "node",
        }
    }
}

/// What is stored of an object that a token depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its identity.
    pub uid: String,
    /// When it is to be gone, if somebody deleted it.
    pub deleted: Option<Timestamp>,
}

/// Who shows a token, as requests know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The name.
    pub name: String,
    /// The identity of the account.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is known about them.
    pub extra: BTreeMap<String, Vec<String>>,
    /// For whom the token is meant, of those it was asked about.
    pub audiences: Vec<String>,
}

/// Why a token is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no token of this issuer.
    #[error("invalid bearer token")]
    Foreign,
    /// It names another key.
    #[error("invalid signature, no keys found")]
    UnknownKey,
    /// The key has not signed it.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// It is meant for others.
    #[error("token audiences {} is invalid for the target audiences {}", listed(.token), listed(.asked))]
    Audience {
        /// For whom it is meant.
        token: Vec<String>,
        /// For whom it was asked.
        asked: Vec<String>,
    },
    /// It has ended.
    #[error("service account token has expired")]
    Expired,
    /// It is not good yet.
    #[error("service account token is not valid yet")]
    Early,
    /// It was made later than now.
    #[error("service account token is issued in the future")]
    Future,
    /// There is no such account any more.
    #[error("serviceaccounts {name:?} not found")]
    NoAccount {
        /// Its name.
        name: String,
    },
    /// The account was deleted and only waits for its end.
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted {
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// What it is bound to is gone.
    #[error("service account token has been invalidated")]
    Unbound,
    /// Another account has the name now.
    #[error("service account UID ({stored}) does not match claim ({claimed})")]
    OtherAccount {
        /// The identity of what is stored.
        stored: String,
        /// The identity of what the token is about.
        claimed: String,
    },
    /// Another object has the name of what it is bound to.
    #[error(
        "{} UID ({stored}) does not match service account {} ref claim ({claimed})",
        kind.word(), kind.word()
    )]
    Rebound {
        /// What it is bound to.
        kind: Kind,
        /// The identity of what is stored.
        stored: String,
        /// The identity of what the token is bound to.
        claimed: String,
    },
    /// A token of a Secret lacks something.
    #[error("{claim} claim is missing")]
    MissingClaim {
        /// What it lacks.
        claim: &'static str,
    },
    /// A token of a Secret is about another account than its subject.
    #[error("sub claim is invalid")]
    OtherSubject,
    /// The Secret of the token is gone or going.
    #[error("Token has been invalidated")]
    SecretGone,
    /// The Secret holds another token now.
    #[error("Token does not match server's copy")]
    OtherToken,
    /// The account of a Secret's token is going.
    #[error("ServiceAccount {namespace}/{name} has been deleted")]
    SecretAccountDeleted {
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Another account has the name now.
    #[error("ServiceAccount UID ({stored}) does not match claim ({claimed})")]
    OtherSecretAccount {
        /// The identity of what is stored.
        stored: String,
        /// The identity of what the token is about.
        claimed: String,
    },
    /// Somebody has marked the Secret of the token.
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{account} has \
         been marked invalid. Use tokens from the TokenRequest API or manually created \
         secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from \
         the secret to temporarily allow use of this token"
    )]
    MarkedInvalid {
        /// Where both are.
        namespace: String,
        /// The Secret.
        secret: String,
        /// The account.
        account: String,
    },
}

/// A list as Go writes it.
fn listed(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

impl Claims {
    /// Who the bearer is, if everything the token claims is true at `now`.
    ///
    /// `asked` is for whom the token should be meant, at least one of them; `find` is asked for
    /// stored objects by kind, namespace and name.
    ///
    /// # Errors
    /// The first claim that is not true.
    pub fn check(
        &self,
        now: Timestamp,
        asked: &[String],
        find: impl Fn(Kind, &str, &str) -> Option<Known>,
    ) -> Result<Bearer, Fault> {
        let meant = asked.iter().filter(|audience| self.audiences.contains(audience));
        let audiences: Vec<String> = meant.cloned().collect();
        if audiences.is_empty() {
            return Err(Fault::Audience { token: self.audiences.clone(), asked: asked.to_vec() });
        }
        self.check_times(now)?;
        // What was deleted longer ago than this is not there any more, whatever holds it back.
        let since = now.checked_sub(LEEWAY).unwrap_or(Timestamp::MIN);
        let Account { namespace, node, pod, secret, serviceaccount, warnafter: _ } = &self.account;
        let name = &serviceaccount.name;
        let known = find(Kind::ServiceAccount, namespace, name)
            .ok_or_else(|| Fault::NoAccount { name: name.clone() })?;
        if known.uid != serviceaccount.uid {
            let (stored, claimed) = (known.uid, serviceaccount.uid.clone());
            return Err(Fault::OtherAccount { stored, claimed });
        }
        if known.deleted.is_some_and(|deleted| deleted < since) {
            let (namespace, name) = (namespace.clone(), name.clone());
            return Err(Fault::AccountDeleted { namespace, name });
        }
        // A pod-bound token only tells the node of its pod.
        let bound_node = node.as_ref().filter(|_| pod.is_none());
        let bound = [
            (Kind::Secret, namespace.as_str(), secret.as_ref()),
            (Kind::Pod, namespace.as_str(), pod.as_ref()),
            (Kind::Node, "", bound_node),
        ];
        for (kind, namespace, reference) in bound {
            let Some(Reference { name, uid }) = reference else { continue };
            let known = find(kind, namespace, name).ok_or(Fault::Unbound)?;
            if known.uid != *uid {
                return Err(Fault::Rebound { kind, stored: known.uid, claimed: uid.clone() });
            }
            if known.deleted.is_some_and(|deleted| deleted < since) {
                return Err(Fault::Unbound);
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

    fn check_times(&self, now: Timestamp) -> Result<(), Fault> {
        let early = now.checked_sub(LEEWAY).unwrap_or(Timestamp::MIN);
        let late = now.checked_add(LEEWAY).unwrap_or(Timestamp::MAX);
        // What cannot be counted lies before or after all that can.
        let moment = |second: i64| {
            let end = if second < 0 { Timestamp::MIN } else { Timestamp::MAX };
            Timestamp::from_second(second).unwrap_or(end)
        };
        if late < moment(self.not_before) {
            return Err(Fault::Early);
        }
        if early > moment(self.expires) {
            return Err(Fault::Expired);
        }
        if late < moment(self.issued) {
            return Err(Fault::Future);
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
