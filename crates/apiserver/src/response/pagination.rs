//! Options of lists and watches, and continue tokens.

use base64::alphabet::URL_SAFE;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{NO_PAD, URL_SAFE_NO_PAD};
use base64::{DecodeError, Engine as _};
use gantry_schema::FieldError;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::request::query::{self, Query};
use crate::request::selector::{FieldSelector, LabelSelector};
use crate::response::status::StatusError;

/// The options of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector.
    pub fields: FieldSelector,
    /// The limit; zero means all.
    pub limit: usize,
    /// The continue token.
    pub continue_from: Option<ContinueFrom>,
    /// The requested resource version.
    pub revision_match: RevisionMatch,
    /// Whether bookmarks are allowed.
    pub bookmarks: bool,
    /// `sendInitialEvents`: true, false or not given.
    pub initial_events: Option<bool>,
    /// The duration of a watch in seconds.
    pub timeout_seconds: Option<u64>,
}

/// The state a list is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RevisionMatch {
    /// The current state.
    #[default]
    Latest,
    /// Any state.
    Any,
    /// A state not older than this revision.
    NotOlderThan(u64),
    /// Exactly this revision.
    Exact(u64),
}

/// The position at which a list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueFrom {
    /// The revision of the first page; `None` continues with the current state.
    pub revision: Option<u64>,
    /// The last key of the previous page.
    pub after: String,
}

#[derive(Serialize, Deserialize)]
struct ContinueToken {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// As Go decodes tokens: trailing bits do not matter.
const GO_BASE64: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

impl ContinueFrom {
    /// Makes the token for a page that ended with `key`, which is relative to the list's own
    /// prefix.
    ///
    /// # Panics
    /// Never: a number and strings can always be serialized.
    #[must_use]
    pub fn token(&self) -> String {
        let rv = self.revision.map_or(-1, |it| i64::try_from(it).unwrap_or(i64::MAX));
        let token =
            ContinueToken { v: TOKEN_VERSION.to_owned(), rv, start: format!("{}\0", self.after) };
        let text = serde_json::to_vec(&token).expect("a token has text keys");
        URL_SAFE_NO_PAD.encode(text)
    }

    /// Decodes a token.
    ///
    /// # Errors
    /// 400 for an invalid token. A key that tries to leave the list's prefix is invalid.
    pub fn read(text: &str) -> Result<Self, StatusError> {
        let fault = |why: String| {
            let words = format!("invalid continue token: continue key is not valid: {why}");
            Err(StatusError::bad_request(words))
        };
        let bytes = match GO_BASE64.decode(text) {
            Ok(bytes) => bytes,
            Err(error) => {
                let place = match error {
                    DecodeError::InvalidByte(place, _)
                    | DecodeError::InvalidLastSymbol(place, _) => place,
                    // The leftover characters that do not make a byte.
                    DecodeError::InvalidLength(_) => text.len() / 4 * 4,
                    DecodeError::InvalidPadding => text.find('=').unwrap_or(text.len()),
                };
                return fault(format!("illegal base64 data at input byte {place}"));
            }
        };
        let token: ContinueToken = match serde_json::from_slice(&bytes) {
            Ok(token) => token,
            Err(error) => {
                let words = gantry_schema::go_json_error(&bytes);
                return fault(words.unwrap_or_else(|| error.to_string()));
            }
        };
        if token.v != TOKEN_VERSION {
            let version = &token.v;
            return fault(format!("server does not recognize this encoded version {version}"));
        }
        if token.rv == 0 {
            let why = format!("incorrect encoded start resourceVersion (version {TOKEN_VERSION})");
            return fault(why);
        }
        if token.start.is_empty() {
            return fault(format!("encoded start key empty (version {TOKEN_VERSION})"));
        }
        let key = token.start.trim_end_matches('\0').trim_start_matches('/');
        let clean = key.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !clean {
            return fault(token.start);
        }
        let revision = u64::try_from(token.rv).ok();
        Ok(Self { revision, after: key.to_owned() })
    }
}

impl ListOptions {
    /// Reads and checks the options of a list or, with `watch`, of a watch.
    ///
    /// # Errors
    /// 400 for what cannot be parsed, 422 for invalid combinations.
    pub fn read(query: &Query, watch: bool) -> Result<Self, StatusError> {
        let labels = LabelSelector::read(query.text("labelSelector")).map_err(bad_token)?;
        let fields = FieldSelector::read(query.text("fieldSelector")).map_err(bad_token)?;
        let limit = query.number("limit")?.unwrap_or(0);
        let timeout_seconds = query.number("timeoutSeconds")?.and_then(|it| u64::try_from(it).ok());
        let initial_events = query.flag("sendInitialEvents");
        let revision = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        let token = query.text("continue");
        let faults = combination_errors(watch, initial_events, revision, matching, token);
        if !faults.is_empty() {
            return Err(StatusError::invalid_options("ListOptions", &faults));
        }
        let resume =
            if token.is_empty() || watch { None } else { Some(ContinueFrom::read(token)?) };
        if resume.is_some() && !matches!(revision, "" | "0") {
            let words = "specifying resource version is not allowed when using continue";
            return Err(StatusError::bad_request(words));
        }
        let limit = usize::try_from(limit).unwrap_or(0);
        let moment = revision_match(revision, matching, limit, watch)?;
        Ok(Self {
            labels,
            fields,
            // Any state means a cached list, and those are not paged.
            limit: if moment == RevisionMatch::Any { 0 } else { limit },
            continue_from: resume,
            revision_match: moment,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            initial_events,
            timeout_seconds,
        })
    }

    /// Whether a selector or limit may leave out objects.
    #[must_use]
    pub fn selects(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

fn bad_token(words: String) -> StatusError {
    StatusError::bad_request(words)
}

fn revision_match(
    revision: &str,
    matching: &str,
    limit: usize,
    watch: bool,
) -> Result<RevisionMatch, StatusError> {
    if revision.is_empty() {
        return Ok(RevisionMatch::Latest);
    }
    let number = query::revision(revision).map_err(|detail| {
        let fault = FieldError::invalid("resourceVersion", &json!(revision), &detail);
        match watch {
            true => StatusError::bad_request(fault.to_string()),
            false => StatusError::bad_request(format!("invalid resource version: {fault}")),
        }
    })?;
    Ok(match (matching, number) {
        (_, 0) => RevisionMatch::Any,
        ("Exact", _) => RevisionMatch::Exact(number),
        ("", _) if limit > 0 && !watch => RevisionMatch::Exact(number),
        _ => RevisionMatch::NotOlderThan(number),
    })
}

fn combination_errors(
    watch: bool,
    initial_events: Option<bool>,
    revision: &str,
    matching: &str,
    token: &str,
) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let mut forbid = |field: &str, why: &str| faults.push(FieldError::forbidden(field, why));
    if watch {
        let field = "resourceVersionMatch";
        match initial_events {
            Some(_) if matching != "NotOlderThan" => forbid(
                field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            None if !matching.is_empty() => forbid(
                field,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            Some(_) | None => {}
        }
        if initial_events.is_some() && !matches!(matching, "" | "NotOlderThan") {
            faults.push(FieldError::not_supported(field, &json!(matching), &["NotOlderThan"]));
        }
        return faults;
    }
    if initial_events.is_some() {
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if matching.is_empty() {
        return faults;
    }
    let field = "resourceVersionMatch";
    if revision.is_empty() {
        let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        forbid(field, why);
    }
    if !token.is_empty() {
        forbid(field, "resourceVersionMatch is forbidden when continue is provided");
    }
    if !matches!(matching, "Exact" | "NotOlderThan") {
        let supported = ["Exact", "NotOlderThan", ""];
        faults.push(FieldError::not_supported(field, &json!(matching), &supported));
    } else if matching == "Exact" && revision == "0" {
        let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        faults.push(FieldError::forbidden(field, why));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(query: &str) -> Result<ListOptions, StatusError> {
        ListOptions::read(&Query::read(Some(query)), false)
    }

    #[test]
    fn a_continue_token_resumes_after_its_page() {
        for revision in [Some(7), None] {
            let resume = ContinueFrom { revision, after: "x/a".to_owned() };
            assert_eq!(ContinueFrom::read(&resume.token()), Ok(resume));
        }
    }

    #[test]
    fn continue_tokens_outside_the_list_are_refused() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let table = [
            "nonsense".to_owned(),
            encode("{}"),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets/a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v9","rv":1,"start":"a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
        ];
        for token in table {
            let refusal = ContinueFrom::read(&token).unwrap_err();
            assert!(refusal.message.contains("continue key is not valid"), "{refusal:?}");
        }
    }

    #[test]
    fn malformed_continue_tokens_are_refused() {
        let table = [("!", 0), ("ab*d", 2), ("abcde", 4), ("e30=", 3)];
        for (token, place) in table {
            let refusal = ContinueFrom::read(token).unwrap_err();
            let words = format!("illegal base64 data at input byte {place}");
            assert!(refusal.message.ends_with(&words), "{token}: {}", refusal.message);
        }
    }

    #[test]
    fn revision_matches_follow_the_parameters() {
        let table = [
            ("", RevisionMatch::Latest),
            ("limit=2", RevisionMatch::Latest),
            ("resourceVersion=0&limit=2", RevisionMatch::Any),
            ("resourceVersion=5", RevisionMatch::NotOlderThan(5)),
            ("resourceVersion=5&limit=2", RevisionMatch::Exact(5)),
            (
                "resourceVersion=5&limit=2&resourceVersionMatch=NotOlderThan",
                RevisionMatch::NotOlderThan(5),
            ),
            ("resourceVersion=5&resourceVersionMatch=Exact", RevisionMatch::Exact(5)),
        ];
        for (query, expected) in table {
            assert_eq!(options(query).unwrap().revision_match, expected, "{query}");
        }
        assert_eq!(options("resourceVersion=0&limit=2").unwrap().limit, 0, "such a list is whole");
    }

    proptest! {
        #[test]
        fn arbitrary_tokens_cause_no_panic(token in ".{0,60}") {
            let _ = ContinueFrom::read(&token);
            let _ = ContinueFrom::read(&URL_SAFE_NO_PAD.encode(&token));
        }
    }
}
