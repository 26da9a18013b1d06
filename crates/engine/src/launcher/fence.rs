//! Fences of calls: a late call of a controller that has died, or one for an earlier run of the
//! launcher, must do nothing. Pure.
//!
//! A call names the binding it is made for: the UID of the requester, and a counter that grows when
//! the launcher is bound and when a binding begins to end. Once a call with a counter was seen,
//! those with lower ones are refused. Calls that name nothing are not fenced.

use http::{HeaderMap, HeaderName, StatusCode};

/// The header that names the binding: `UID/COUNTER`. The UID is empty between two bindings.
const BINDING_HEADER: HeaderName = HeaderName::from_static("gantry-binding");
/// The header that names a run of the launcher.
pub(super) const BOOT_HEADER: HeaderName = HeaderName::from_static("gantry-boot-id");

/// What a call says that it is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallFence {
    /// The run of the launcher.
    boot: Option<String>,
    /// The counter of the binding, and the whole header.
    binding: Option<(u64, String)>,
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("header Gantry-Binding is {0:?}: write REQUESTER-UID/COUNTER")]
    UnreadableBinding(String),
    #[error("header Gantry-Boot-Id is unreadable: write the boot_id of the list of instances")]
    UnreadableBoot,
    #[error("the call is for binding {call:?}, and one with counter {newest} was seen")]
    Older { call: String, newest: u64 },
    #[error("the call is for the launcher with boot ID {call:?}, and this one has {own:?}")]
    OtherBoot { call: String, own: String },
}

impl Refusal {
    /// The status of the response.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::UnreadableBinding(_) | Self::UnreadableBoot => StatusCode::BAD_REQUEST,
            Self::Older { .. } | Self::OtherBoot { .. } => StatusCode::PRECONDITION_FAILED,
        }
    }
}

impl CallFence {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Refusal> {
        let boot = match headers.get(BOOT_HEADER).map(|it| it.to_str()) {
            None => None,
            Some(Ok(boot)) => Some(boot.trim().to_owned()),
            Some(Err(_)) => return Err(Refusal::UnreadableBoot),
        };
        let Some(binding) = headers.get(BINDING_HEADER) else {
            return Ok(Self { boot, binding: None });
        };
        let text = String::from_utf8_lossy(binding.as_bytes()).trim().to_owned();
        let counter = text.rsplit_once('/').and_then(|(_, counter)| {
            let is_number = counter.bytes().all(|it| it.is_ascii_digit());
            is_number.then(|| counter.parse::<u64>().ok()).flatten()
        });
        match counter {
            Some(counter) => Ok(Self { boot, binding: Some((counter, text)) }),
            None => Err(Refusal::UnreadableBinding(text)),
        }
    }

    /// The counter of the binding; `None` if the call is not fenced.
    pub(super) fn counter(&self) -> Option<u64> {
        self.binding.as_ref().map(|(counter, _)| *counter)
    }
}

/// The greatest counter that was seen.
#[derive(Debug)]
pub(super) struct Fence {
    boot: String,
    newest: u64,
}

impl Fence {
    pub(super) fn new(boot: String) -> Self {
        Self { boot, newest: 0 }
    }

    /// Admits a call of the newest binding or of a newer one, and records its counter.
    pub(super) fn admit(&mut self, call: &CallFence) -> Result<(), Refusal> {
        self.check(call)?;
        self.newest = self.newest.max(call.counter().unwrap_or(0));
        Ok(())
    }

    /// Whether a call that was admitted would be admitted again: what takes time is checked again
    /// before it has an effect.
    pub(super) fn check(&self, call: &CallFence) -> Result<(), Refusal> {
        if let Some(boot) = call.boot.as_ref().filter(|it| **it != self.boot) {
            return Err(Refusal::OtherBoot { call: boot.clone(), own: self.boot.clone() });
        }
        match &call.binding {
            Some((counter, text)) if *counter < self.newest => {
                Err(Refusal::Older { call: text.clone(), newest: self.newest })
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(binding: Option<&str>, boot: Option<&str>) -> Result<CallFence, Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in [("Gantry-Binding", binding), ("Gantry-Boot-Id", boot)] {
            if let Some(value) = value {
                let name: HeaderName = name.parse().unwrap();
                headers.insert(name, value.parse().unwrap());
            }
        }
        CallFence::read(&headers)
    }

    #[test]
    fn as_69_counters_only_grow() {
        let mut fence = Fence::new("b".to_owned());
        let table = [
            (None, None, true),
            (Some("a/3"), Some("b"), true),
            (Some("a/3"), None, true),
            // Between two bindings nobody has the launcher; the counter is that of the last one.
            (Some("/3"), Some("b"), true),
            (Some("a/2"), Some("b"), false),
            (Some("c/4"), Some("b"), true),
            (Some("a/3"), Some("b"), false),
            // Of another run of the launcher, whatever its counter; and that is not recorded.
            (Some("c/9"), Some("x"), false),
            (None, Some("x"), false),
            (Some("c/4"), Some("b"), true),
            (None, None, true),
        ];
        for (binding, boot, expected) in table {
            let admitted = fence.admit(&call(binding, boot).unwrap());
            assert_eq!(admitted.is_ok(), expected, "{binding:?} {boot:?}");
            if let Err(refusal) = admitted {
                assert_eq!(refusal.status(), StatusCode::PRECONDITION_FAILED);
            }
        }
        for bad in ["", "a", "a/", "a/-1", "a/+1", "a/x", "a/99999999999999999999"] {
            let refusal = call(Some(bad), None).unwrap_err();
            assert_eq!(refusal.status(), StatusCode::BAD_REQUEST, "{bad:?}");
        }
    }

    #[test]
    fn as_69_a_call_that_was_overtaken_is_refused_before_it_has_an_effect() {
        let mut fence = Fence::new("b".to_owned());
        let create = call(Some("a/3"), Some("b")).unwrap();
        fence.admit(&create).unwrap();
        fence.check(&create).unwrap();
        // A deletion of what was not there yet.
        fence.admit(&call(Some("a/4"), Some("b")).unwrap()).unwrap();
        let refusal = fence.check(&create).unwrap_err();
        assert_eq!(refusal, Refusal::Older { call: "a/3".to_owned(), newest: 4 });
    }
}
