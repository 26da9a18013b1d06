//! Fences of calls to engines: a late call of a controller that has died must do nothing. Pure.
//!
//! Each call names the binding it is made for: the UID of the requester, and a counter that grows
//! with each binding of the launcher. A call for an older binding than the newest one is refused.

/// The header that names the binding: `UID/COUNTER`.
pub(super) const HEADER: &str = "gantry-binding";

/// A binding of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    requester: String,
    counter: u64,
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("header {HEADER} is missing: name the binding as REQUESTER-UID/COUNTER")]
    Missing,
    #[error("header {HEADER} is {0:?}: write REQUESTER-UID/COUNTER")]
    Unreadable(String),
    #[error("the call is for binding {call}, and the newest is {newest}")]
    Older { call: String, newest: String },
}

impl Binding {
    pub(super) fn parse(text: Option<&str>) -> Result<Self, Refusal> {
        let text = text.ok_or(Refusal::Missing)?;
        let parsed = text.trim().rsplit_once('/').and_then(|(requester, counter)| {
            let counter = counter.parse().ok()?;
            (!requester.is_empty()).then(|| Self { requester: requester.to_owned(), counter })
        });
        parsed.ok_or_else(|| Refusal::Unreadable(text.to_owned()))
    }
}

impl std::fmt::Display for Binding {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}/{}", self.requester, self.counter)
    }
}

/// The newest binding that was seen.
#[derive(Debug, Default)]
pub(super) struct Fence(Option<Binding>);

impl Fence {
    /// Admits a call of the newest binding or of a newer one.
    pub(super) fn admit(&mut self, call: Binding) -> Result<(), Refusal> {
        match &self.0 {
            Some(newest)
                if call.counter < newest.counter || {
                    call.counter == newest.counter && call.requester != newest.requester
                } =>
            {
                Err(Refusal::Older { call: call.to_string(), newest: newest.to_string() })
            }
            Some(_) | None => {
                self.0 = Some(call);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_binding_is_admitted() {
        let mut fence = Fence::default();
        let table = [
            ("a/1", true),
            ("a/1", true),
            // Another requester cannot have the same number.
            ("b/1", false),
            ("b/2", true),
            ("a/1", false),
            ("a/3", true),
            ("b/2", false),
        ];
        for (text, expected) in table {
            let admitted = fence.admit(Binding::parse(Some(text)).unwrap());
            assert_eq!(admitted.is_ok(), expected, "{text}");
        }
        for bad in ["", "a", "/1", "a/", "a/-1", "a/x"] {
            Binding::parse(Some(bad)).unwrap_err();
        }
        assert_eq!(Binding::parse(None), Err(Refusal::Missing));
    }
}
