//! A certificate whose authority has signed nothing else and never will.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::authority::{Authority, Leaf};
use super::{Identity, LIFE, PkiError, check_against, due, named};

/// What a server shows that is known by one certificate alone, such as a webhook.
///
/// The key of the authority is dropped when it has signed: whoever steals what is kept can pretend to
/// be this server, and nobody else. It lives a year, and is made anew with its authority after two thirds
/// of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The certificate of the authority, as PEM.
    pub authority: String,
    /// What the server shows.
    pub identity: Identity,
    /// When to make another.
    pub renew_at: Timestamp,
}

impl Sealed {
    /// A new certificate for these names and addresses, and for this machine under its own.
    ///
    /// # Errors
    /// A name is none, or the machine gave no randomness.
    pub fn create(names: &[String], now: Timestamp) -> Result<Self, PkiError> {
        let names = all(names)?;
        let authority = Authority::create(None, now)?;
        let identity = authority.issue(&Leaf::Server { names: &names }, LIFE, now)?;
        let authority = authority.own.certificate;
        let facts = check_against(&authority, &identity, &Leaf::Server { names: &names }, now)
            .map_err(|why| PkiError::Unfit { what: "the certificate".to_owned(), why })?;
        Ok(Self { authority, identity, renew_at: due(&facts) })
    }

    /// One that was made before, if it is good for these names, and for some time yet.
    ///
    /// # Errors
    /// Why it is of no use.
    pub fn open(
        authority: &str,
        identity: Identity,
        names: &[String],
        now: Timestamp,
    ) -> Result<Self, &'static str> {
        let names = all(names).map_err(|_| "a name is none")?;
        let facts = check_against(authority, &identity, &Leaf::Server { names: &names }, now)?;
        Ok(Self { authority: authority.to_owned(), identity, renew_at: due(&facts) })
    }
}

fn all(names: &[String]) -> Result<BTreeSet<String>, PkiError> {
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    named(BTreeSet::from(own), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn what_was_made_is_good_until_it_is_due() {
        let names = ["gantry-webhook.gantry-system.svc".to_owned()];
        let now = at("2026-01-01T00:00:00Z");
        let made = Sealed::create(&names, now).unwrap();
        let open = |names: &[String], now: &str| {
            Sealed::open(&made.authority, made.identity.clone(), names, at(now))
        };
        assert_eq!(open(&names, "2026-01-02T00:00:00Z"), Ok(made.clone()));
        assert_eq!(open(&names, "2026-10-01T00:00:00Z"), Err("it is due for renewal"));
        let foreign = Err("it is not of this authority, or not valid now");
        assert_eq!(open(&names, "2027-02-01T00:00:00Z"), foreign);
        let others = ["other.svc".to_owned()];
        assert_eq!(open(&others, "2026-01-02T00:00:00Z"), Err("it is for other names"));
        let another = Sealed::create(&names, now).unwrap();
        let mixed = Sealed::open(&another.authority, made.identity.clone(), &names, now);
        assert_eq!(mixed, foreign);
        assert!(Sealed::create(&["not a name".to_owned()], now).is_err());
    }
}
