//! What was said in one run of one case.

use std::fmt;

use serde_json::Value;

use crate::response::Response;

/// Every recorded exchange of one run of one case, in the order in which the answers were complete.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// The name of the case.
    pub case: String,
    /// The namespace of the run. Names of cluster-wide objects contain it as well.
    pub namespace: String,
    /// Host and port of the server, as they may appear in texts.
    pub server: String,
    /// The exchanges.
    pub exchanges: Vec<Exchange>,
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What was asked.
    pub request: RecordedRequest,
    /// What came back.
    pub response: Response,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A user who may do everything.
    Admin,
    /// A client without credentials but those of the request itself.
    Anonymous,
}

/// A request as it was sent.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Who asked.
    pub caller: Caller,
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The headers the case set itself.
    pub headers: Vec<(String, String)>,
    /// The body, if there was one.
    pub body: Option<String>,
}

impl Transcript {
    /// An empty transcript.
    #[must_use]
    pub fn new(case: &str, place: &str, server: &str) -> Self {
        let exchanges = Vec::new();
        Self {
            case: case.to_owned(),
            namespace: place.to_owned(),
            server: server.to_owned(),
            exchanges,
        }
    }

    /// The last `count` exchanges, to be read by a person.
    #[must_use]
    pub fn tail(&self, count: usize) -> String {
        let skipped = self.exchanges.len().saturating_sub(count);
        let last = self.exchanges.iter().enumerate().skip(skipped);
        last.map(|(index, exchange)| format!("#{} {exchange}\n", index + 1)).collect()
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, response: answer } = self;
        writeln!(f, "{} {}", request.method, request.path)?;
        for (name, value) in &request.headers {
            writeln!(f, "  > {name}: {value}")?;
        }
        if let Some(body) = &request.body {
            writeln!(f, "  > {}", shortened(body))?;
        }
        write!(f, "{answer}")
    }
}

/// Longest piece of a body that is printed. Enough for any Status; a large list is cut.
const MAX_PRINTED_BYTES: usize = 4_000;

/// A text cut to what a person will read.
pub(crate) fn shortened(text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(MAX_PRINTED_BYTES) else { return text.to_owned() };
    format!("{}… ({} bytes)", &text[..end], text.len())
}

/// One line of JSON, cut to what a person will read.
pub(crate) fn line(value: &Value) -> String {
    shortened(&value.to_string())
}
