//! Tokens that are stored in Secrets of type `kubernetes.io/service-account-token`.
//!
//! Such a token does not expire and has no audience. Its Secret limits it: the token is valid as
//! long as the Secret holds exactly this token and the service account has the same UID.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::claims::{Bearer, SERVICE_ACCOUNT, StoredObject, TokenError};

/// The issuer of tokens that are stored in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// The claims of a Secret's token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LegacyClaims {
    /// The issuer: [`LEGACY_ISSUER`].
    #[serde(rename = "iss")]
    pub issuer: String,
    /// The namespace of the service account and the Secret.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub namespace: String,
    /// The Secret that holds it.
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub secret: String,
    /// The service account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub account: String,
    /// The UID of the service account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub account_uid: String,
    /// The user name of the bearer.
    #[serde(rename = "sub")]
    pub subject: String,
}

/// The stored state of a Secret that holds a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSecret {
    /// The token it holds.
    pub token: Vec<u8>,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// Whether its token was marked invalid.
    pub marked_invalid: bool,
}

impl LegacyClaims {
    /// Makes the claims for a Secret of a service account.
    #[must_use]
    pub fn new(namespace: &str, account: &str, account_uid: &str, secret: &str) -> Self {
        Self {
            issuer: LEGACY_ISSUER.to_owned(),
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            account: account.to_owned(),
            account_uid: account_uid.to_owned(),
            subject: format!("{SERVICE_ACCOUNT}{namespace}:{account}"),
        }
    }

    /// Returns the bearer of `token`, which has these claims, for one of `audiences`.
    ///
    /// `secret` and `account` look up stored objects by namespace and name.
    ///
    /// # Errors
    /// The first claim that is not true.
    pub fn check(
        &self,
        token: &str,
        audiences: Vec<String>,
        secret: impl FnOnce(&str, &str) -> Option<StoredSecret>,
        account: impl FnOnce(&str, &str) -> Option<StoredObject>,
    ) -> Result<Bearer, TokenError> {
        let Self { issuer: _, namespace, secret: secret_name, account: name, .. } = self;
        let required = [
            ("sub", &self.subject),
            ("namespace", namespace),
            ("secretName", secret_name),
            ("serviceAccountName", name),
            ("serviceAccountUID", &self.account_uid),
        ];
        for (claim, value) in required {
            if value.is_empty() {
                return Err(TokenError::MissingClaim { claim });
            }
        }
        if self.subject != format!("{SERVICE_ACCOUNT}{namespace}:{name}") {
            return Err(TokenError::SubjectMismatch);
        }
        let stored = secret(namespace, secret_name).filter(|it| !it.deleted);
        let stored = stored.ok_or(TokenError::SecretDeleted)?;
        if stored.token != token.as_bytes() {
            return Err(TokenError::TokenMismatch);
        }
        let known = account(namespace, name)
            .ok_or_else(|| TokenError::AccountNotFound { name: name.clone() })?;
        if known.deletion_timestamp.is_some() {
            let (namespace, name) = (namespace.clone(), name.clone());
            return Err(TokenError::SecretAccountDeleted { namespace, name });
        }
        if known.uid != self.account_uid {
            let (stored, claimed) = (known.uid, self.account_uid.clone());
            return Err(TokenError::SecretAccountReplaced { stored, claimed });
        }
        if stored.marked_invalid {
            return Err(TokenError::MarkedInvalid {
                namespace: namespace.clone(),
                secret: secret_name.clone(),
                account: name.clone(),
            });
        }
        Ok(Bearer {
            name: self.subject.clone(),
            uid: self.account_uid.clone(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
            extra: BTreeMap::new(),
            audiences,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::key::Key;

    fn secret(token: &str) -> Option<StoredSecret> {
        Some(StoredSecret { token: token.as_bytes().to_vec(), ..StoredSecret::default() })
    }

    fn account(uid: &str) -> Option<StoredObject> {
        Some(StoredObject { uid: uid.to_owned(), deletion_timestamp: None })
    }

    #[test]
    fn a_token_needs_its_secret_and_its_account() {
        let claims = LegacyClaims::new("n", "a", "u", "s");
        let gone = Some(StoredObject {
            uid: "u".to_owned(),
            deletion_timestamp: Some(Timestamp::UNIX_EPOCH),
        });
        let with = |change: fn(&mut StoredSecret)| {
            let mut stored = secret("t").unwrap();
            change(&mut stored);
            Some(stored)
        };
        let table = [
            (secret("t"), account("u"), ""),
            (None, account("u"), "Token has been invalidated"),
            (with(|it| it.deleted = true), account("u"), "Token has been invalidated"),
            (secret("other"), account("u"), "Token does not match server's copy"),
            (secret(""), account("u"), "Token does not match server's copy"),
            (secret("t"), None, "serviceaccounts \"a\" not found"),
            (secret("t"), gone, "ServiceAccount n/a has been deleted"),
            (secret("t"), account("v"), "ServiceAccount UID (v) does not match claim (u)"),
            (
                with(|it| it.marked_invalid = true),
                account("u"),
                "the token in secret n/s for service account n/a has been marked invalid. Use tokens \
                 from the TokenRequest API or manually created secret-based tokens, or remove the \
                 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily \
                 allow use of this token",
            ),
        ];
        for (secret, account, expected) in table {
            let checked = claims.check("t", Vec::new(), |_, _| secret, |_, _| account);
            let said = checked.as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert_eq!(said, expected);
            if let Ok(bearer) = checked {
                assert_eq!(bearer.name, "system:serviceaccount:n:a");
                let groups = ["system:serviceaccounts", "system:serviceaccounts:n"];
                assert_eq!(bearer.groups, groups);
                assert_eq!((bearer.uid.as_str(), bearer.extra.len()), ("u", 0));
            }
        }
    }

    type Change = fn(&mut LegacyClaims);

    #[test]
    fn incomplete_or_contradictory_claims_are_refused() {
        let good = LegacyClaims::new("n", "a", "u", "s");
        let table: [(Change, &str); 7] = [
            (|it| it.subject.clear(), "sub claim is missing"),
            (|it| it.namespace.clear(), "namespace claim is missing"),
            (|it| it.secret.clear(), "secretName claim is missing"),
            (|it| it.account.clear(), "serviceAccountName claim is missing"),
            (|it| it.account_uid.clear(), "serviceAccountUID claim is missing"),
            (|it| "system:admin".clone_into(&mut it.subject), "sub claim is invalid"),
            (|it| "m".clone_into(&mut it.namespace), "sub claim is invalid"),
        ];
        for (change, expected) in table {
            let mut claims = good.clone();
            change(&mut claims);
            let found = |_: &str, _: &str| secret("t");
            let checked = claims.check("t", Vec::new(), found, |_, _| account("u"));
            assert_eq!(checked.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn only_tokens_of_the_key_are_verified() {
        let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
        let claims = LegacyClaims::new("n", "a", "u", "s");
        let token = key.sign_legacy(&claims).unwrap();
        assert_eq!(key.verify_legacy(&token), Ok(claims));
        assert_eq!(other.verify_legacy(&token), Err(TokenError::UnknownKey));
        assert_eq!(key.verify(&token, "https://issuer"), Err(TokenError::OtherIssuer));
        // They are not accepted as tokens of the other type either, should both have one issuer.
        assert_eq!(key.verify(&token, LEGACY_ISSUER), Err(TokenError::OtherIssuer));
        let broken = format!("{}A", &token[..token.len() - 1]);
        let read = key.verify_legacy(&broken);
        assert!(read == Err(TokenError::Signature) || broken == token, "{read:?}");
    }
}
