//! Options of lists and watches, and the tokens that lead from page to page.

use base64::alphabet::URL_SAFE;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{NO_PAD, URL_SAFE_NO_PAD};
use base64::{DecodeError, Engine as _};
use gantry_schema::Invalid;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::query::{self, Query};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::Refusal;

/// What of a collection is asked for.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Which labels.
    pub labels: LabelSelector,
    /// Which field values.
    pub fields: FieldSelector,
    /// At most so many; zero means all.
    pub limit: usize,
    /// Where to go on.
    pub resume: Option<Resume>,
    /// Of which moment.
    pub moment: Moment,
    /// A watch may be told how far it is.
    pub bookmarks: bool,
    /// A watch begins with what is there: asked for, asked not to, or not said.
    pub initial_events: Option<bool>,
    /// A watch ends after so many seconds.
    pub timeout_seconds: Option<u64>,
}

/// Of which moment a list is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// As it is now.
    #[default]
    Latest,
    /// Any moment will do.
    Any,
    /// Not before this revision.
    NotBefore(u64),
    /// Exactly this revision.
    At(u64),
}

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The revision of the first page; `None` goes on with what is there now.
    pub revision: Option<u64>,
    /// The last key of the page before.
    pub after: String,
}

#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// As Go reads tokens: bits that are left over do not matter.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

impl Resume {
    /// The token of a page that ended with `key`, which is relative to the list's own prefix.
    ///
    /// # Panics
    /// Never: a number and texts can always be written.
    #[must_use]
    pub fn token(&self) -> String {
        let rv = self.revision.map_or(-1, |it| i64::try_from(it).unwrap_or(i64::MAX));
        let token = Token { v: TOKEN_VERSION.to_owned(), rv, start: format!("{}\0", self.after) };
        let text = serde_json::to_vec(&token).expect("a token has text keys");
        URL_SAFE_NO_PAD.encode(text)
    }

    /// Reads a token.
    ///
    /// # Errors
    /// 400 for what no page ever ended with. A key that tries to leave the list's prefix is one.
    pub fn read(text: &str) -> Result<Self, Refusal> {
        let fault = |why: String| {
            let words = format!("invalid continue token: continue key is not valid: {why}");
            Err(Refusal::bad_request(words))
        };
        let bytes = match LENIENT.decode(text) {
            Ok(bytes) => bytes,
            Err(error) => {
                let place = match error {
                    DecodeError::InvalidByte(place, _)
                    | DecodeError::InvalidLastSymbol(place, _) => place,
                    // The letters that do not make a byte.
                    DecodeError::InvalidLength(_) => text.len() / 4 * 4,
                    DecodeError::InvalidPadding => text.find('=').unwrap_or(text.len()),
                };
                return fault(format!("illegal base64 data at input byte {place}"));
            }
        };
        let token: Token = match serde_json::from_slice(&bytes) {
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
    /// 400 for what cannot be read, 422 for what does not go together.
    pub fn read(query: &Query, watch: bool) -> Result<Self, Refusal> {
        let labels = LabelSelector::read(query.text("labelSelector")).map_err(unreadable)?;
        let fields = FieldSelector::read(query.text("fieldSelector")).map_err(unreadable)?;
        let limit = query.number("limit")?.unwrap_or(0);
        let timeout_seconds = query.number("timeoutSeconds")?.and_then(|it| u64::try_from(it).ok());
        let initial_events = query.flag("sendInitialEvents");
        let revision = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        let token = query.text("continue");
        let faults = combination_faults(watch, initial_events, revision, matching, token);
        if !faults.is_empty() {
            return Err(Refusal::invalid_options("ListOptions", &faults));
        }
        let resume = if token.is_empty() || watch { None } else { Some(Resume::read(token)?) };
        if resume.is_some() && !matches!(revision, "" | "0") {
            let words = "specifying resource version is not allowed when using continue";
            return Err(Refusal::bad_request(words));
        }
        let limit = usize::try_from(limit).unwrap_or(0);
        let moment = moment(revision, matching, limit, watch)?;
        Ok(Self {
            labels,
            fields,
            // Any moment means a cached list, and those come whole.
            limit: if moment == Moment::Any { 0 } else { limit },
            resume,
            moment,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            initial_events,
            timeout_seconds,
        })
    }

    /// Whether some objects may be left out.
    #[must_use]
    pub fn selects(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

fn unreadable(words: String) -> Refusal {
    Refusal::bad_request(words)
}

fn moment(revision: &str, matching: &str, limit: usize, watch: bool) -> Result<Moment, Refusal> {
    if revision.is_empty() {
        return Ok(Moment::Latest);
    }
    let number = query::revision(revision).map_err(|detail| {
        let fault = Invalid::value("resourceVersion", &json!(revision), &detail);
        match watch {
            true => Refusal::bad_request(fault.to_string()),
            false => Refusal::bad_request(format!("invalid resource version: {fault}")),
        }
    })?;
    Ok(match (matching, number) {
        (_, 0) => Moment::Any,
        ("Exact", _) => Moment::At(number),
        ("", _) if limit > 0 && !watch => Moment::At(number),
        _ => Moment::NotBefore(number),
    })
}

fn combination_faults(
    watch: bool,
    initial_events: Option<bool>,
    revision: &str,
    matching: &str,
    token: &str,
) -> Vec<Invalid> {
    let mut faults = Vec::new();
    let mut forbid = |field: &str, why: &str| faults.push(Invalid::forbidden(field, why));
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
            faults.push(Invalid::not_supported(field, &json!(matching), &["NotOlderThan"]));
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
        faults.push(Invalid::not_supported(field, &json!(matching), &supported));
    } else if matching == "Exact" && revision == "0" {
        let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        faults.push(Invalid::forbidden(field, why));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(query: &str) -> Result<ListOptions, Refusal> {
        ListOptions::read(&Query::read(Some(query)), false)
    }

    #[test]
    fn a_token_leads_to_where_its_page_ended() {
        for revision in [Some(7), None] {
            let resume = Resume { revision, after: "x/a".to_owned() };
            assert_eq!(Resume::read(&resume.token()), Ok(resume));
        }
    }

    #[test]
    fn tokens_that_lead_elsewhere_are_refused() {
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
            let refusal = Resume::read(&token).unwrap_err();
            assert!(refusal.message.contains("continue key is not valid"), "{refusal:?}");
        }
    }

    #[test]
    fn tokens_that_are_not_text_are_refused_in_known_words() {
        let table = [("!", 0), ("ab*d", 2), ("abcde", 4), ("e30=", 3)];
        for (token, place) in table {
            let refusal = Resume::read(token).unwrap_err();
            let words = format!("illegal base64 data at input byte {place}");
            assert!(refusal.message.ends_with(&words), "{token}: {}", refusal.message);
        }
    }

    #[test]
    fn moments_are_what_the_parameters_say() {
        let table = [
            ("", Moment::Latest),
            ("limit=2", Moment::Latest),
            ("resourceVersion=0&limit=2", Moment::Any),
            ("resourceVersion=5", Moment::NotBefore(5)),
            ("resourceVersion=5&limit=2", Moment::At(5)),
            ("resourceVersion=5&limit=2&resourceVersionMatch=NotOlderThan", Moment::NotBefore(5)),
            ("resourceVersion=5&resourceVersionMatch=Exact", Moment::At(5)),
        ];
        for (query, expected) in table {
            assert_eq!(options(query).unwrap().moment, expected, "{query}");
        }
        assert_eq!(options("resourceVersion=0&limit=2").unwrap().limit, 0, "such a list is whole");
    }

    proptest! {
        #[test]
        fn no_token_is_too_odd(token in ".{0,60}") {
            let _ = Resume::read(&token);
            let _ = Resume::read(&URL_SAFE_NO_PAD.encode(&token));
        }
    }
}
