//! Tokens that are kept in Secrets of type `kubernetes.io/service-account-token`.
//!
//! Such a token has no end and names no audience. What limits it is its Secret: the token is good as
//! long as the Secret holds exactly it and the account has the same identity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::claims::{Bearer, Fault, Known, SERVICE_ACCOUNT};

/// Who signs tokens that are kept in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// What the token of a Secret says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LegacyClaims {
    /// Who made it: [`LEGACY_ISSUER`].
    #[serde(rename = "iss")]
    pub issuer: String,
    /// Where the account and the Secret are.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub namespace: String,
    /// The Secret that holds it.
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub secret: String,
    /// The account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub account: String,
    /// The identity of the account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub account_uid: String,
    /// The name of the bearer.
    #[serde(rename = "sub")]
    pub subject: String,
}

/// What is stored of a Secret that holds a token.
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
    /// The claims for a Secret of an account.
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

    /// Who the bearer of `token`, which makes these claims, is for one of `audiences`.
    ///
    /// `secret` and `account` find what is stored, by namespace and name.
    ///
    /// # Errors
    /// The first claim that is not true.
    pub fn check(
        &self,
        token: &str,
        audiences: Vec<String>,
        secret: impl FnOnce(&str, &str) -> Option<StoredSecret>,
        account: impl FnOnce(&str, &str) -> Option<Known>,
    ) -> Result<Bearer, Fault> {
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
                return Err(Fault::MissingClaim { claim });
            }
        }
        if self.subject != format!("{SERVICE_ACCOUNT}{namespace}:{name}") {
            return Err(Fault::OtherSubject);
        }
        let stored = secret(namespace, secret_name).filter(|it| !it.deleted);
        let stored = stored.ok_or(Fault::SecretGone)?;
        if stored.token != token.as_bytes() {
            return Err(Fault::OtherToken);
        }
        let known =
            account(namespace, name).ok_or_else(|| Fault::NoAccount { name: name.clone() })?;
        if known.deleted.is_some() {
            let (namespace, name) = (namespace.clone(), name.clone());
            return Err(Fault::SecretAccountDeleted { namespace, name });
        }
        if known.uid != self.account_uid {
            let (stored, claimed) = (known.uid, self.account_uid.clone());
            return Err(Fault::OtherSecretAccount { stored, claimed });
        }
        if stored.marked_invalid {
            return Err(Fault::MarkedInvalid {
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

    fn account(uid: &str) -> Option<Known> {
        Some(Known { uid: uid.to_owned(), deleted: None })
    }

    #[test]
    fn a_token_is_as_good_as_its_secret_and_its_account() {
        let claims = LegacyClaims::new("n", "a", "u", "s");
        let gone = Some(Known { uid: "u".to_owned(), deleted: Some(Timestamp::UNIX_EPOCH) });
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
    fn claims_that_lack_something_or_contradict_each_other_are_not_believed() {
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
    fn only_tokens_of_the_key_are_read() {
        let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
        let claims = LegacyClaims::new("n", "a", "u", "s");
        let token = key.sign_legacy(&claims).unwrap();
        assert_eq!(key.read_legacy(&token), Ok(claims));
        assert_eq!(other.read_legacy(&token), Err(Fault::UnknownKey));
        assert_eq!(key.read(&token, "https://issuer"), Err(Fault::Foreign));
        // Nor are they taken for tokens of the other sort, should both have one issuer.
        assert_eq!(key.read(&token, LEGACY_ISSUER), Err(Fault::Foreign));
        let broken = format!("{}A", &token[..token.len() - 1]);
        let read = key.read_legacy(&broken);
        assert!(read == Err(Fault::Signature) || broken == token, "{read:?}");
    }
}
