//! Bearer tokens: signed and believed, listed in a file, and what they say about their bearer.
//!
//! A [`Key`] signs [`Claims`] about a service account and reads back only what it has signed, with
//! the one algorithm it has. Whether the account and what the token is bound to are still there is
//! asked of the caller, who knows what is stored. [`StaticTokens`] are the tokens of a file. Nothing
//! here opens a file or reads a clock. The reasons of a refusal are those of Kubernetes, word for word.

mod claims;
mod key;
mod legacy;
mod statics;

pub use claims::{Account, Bearer, Claims, Fault, Kind, Known, Reference, SERVICE_ACCOUNT};
pub use key::{ALGORITHM, Key, KeyError, NoKey, SignError};
pub use legacy::{LEGACY_ISSUER, LegacyClaims, StoredSecret};
pub use statics::{StaticTokens, StaticUser, TokenFileError};
