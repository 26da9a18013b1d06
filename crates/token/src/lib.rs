//! Bearer tokens: signs and verifies service account tokens, and reads token files.
//!
//! A [`Key`] signs [`Claims`] about a service account and verifies only tokens it has signed, with
//! the one algorithm it has. Whether the account and the objects a token is bound to still exist is
//! looked up by the caller, which knows what is stored. [`StaticTokens`] are the tokens of a file.
//! Nothing here opens a file or reads a clock. The reasons of a refusal are those of Kubernetes,
//! word for word.

mod claims;
mod key;
mod legacy;
mod static_tokens;

pub use claims::{
    Bearer, Claims, KubernetesClaim, Reference, ReferencedKind, SERVICE_ACCOUNT, StoredObject,
    TokenError,
};
pub use key::{ALGORITHM, Key, KeyError, KeyGenerationError, SignError};
pub use legacy::{LEGACY_ISSUER, LegacyClaims, StoredSecret};
pub use static_tokens::{StaticTokens, StaticUser, TokenFileError};
