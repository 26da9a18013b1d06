//! An answer of a server, and the questions a case may put to it.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::case::{CaseError, Outcome, unexpected};
use crate::transcript::{line, shortened};

/// A complete answer: head and body, or head and the events of a watch.
#[derive(Clone, Debug)]
pub struct Response {
    /// The request line, for messages.
    pub request_line: String,
    /// The HTTP status.
    pub status: u16,
    /// The headers, names in lower case; all values of one name in order.
    pub headers: BTreeMap<String, Vec<String>>,
    /// What followed.
    pub body: Body,
}

/// What followed the head of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Nothing.
    Empty,
    /// A document.
    Json(Value),
    /// Something that is no JSON.
    Text(String),
    /// The events of a watch, as far as they were read, and whether the server then ended it.
    Events {
        /// In order of arrival.
        events: Vec<Value>,
        /// True if the server ended the stream, false if the case had seen enough.
        ended: bool,
    },
}

impl Body {
    /// Reads a body by looking at it: what parses as JSON is JSON.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::Empty;
        }
        serde_json::from_slice(bytes)
            .map_or_else(|_| Self::Text(String::from_utf8_lossy(bytes).into_owned()), Self::Json)
    }
}

impl Response {
    /// The document, or null if there is none.
    #[must_use]
    pub fn json(&self) -> &Value {
        match &self.body {
            Body::Json(value) => value,
            Body::Empty | Body::Text(_) | Body::Events { .. } => &Value::Null,
        }
    }

    /// The text of a body that is no JSON.
    #[must_use]
    pub fn text(&self) -> &str {
        match &self.body {
            Body::Text(text) => text,
            Body::Empty | Body::Json(_) | Body::Events { .. } => "",
        }
    }

    /// The events of a watch.
    #[must_use]
    pub fn events(&self) -> &[Value] {
        match &self.body {
            Body::Events { events, .. } => events,
            Body::Empty | Body::Json(_) | Body::Text(_) => &[],
        }
    }

    /// The value at a JSON pointer, null if it is absent.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &Value {
        self.json().pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The string at a JSON pointer, empty if there is none.
    #[must_use]
    pub fn string(&self, pointer: &str) -> String {
        self.at(pointer).as_str().unwrap_or_default().to_owned()
    }

    /// The object's resourceVersion; zero if there is none.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.string("/metadata/resourceVersion").parse().unwrap_or_default()
    }

    /// All values of one header.
    #[must_use]
    pub fn header(&self, name: &str) -> &[String] {
        self.headers.get(name).map_or(&[], Vec::as_slice)
    }

    /// Checks the status and gives the answer back.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if the status is another one.
    pub fn expect(self, status: u16) -> Result<Self, CaseError> {
        if self.status == status {
            return Ok(self);
        }
        Err(unexpected(
            format!("status of {}", self.request_line),
            status.to_string(),
            self.to_string(),
        ))
    }

    /// Checks that the answer is a Status with this code, reason and message.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] naming the first of them that differs.
    pub fn expect_error(self, code: u16, reason: &str, message: &str) -> Result<Self, CaseError> {
        let answer = self.expect(code)?.expect_kind("Status")?;
        answer.has_value("/reason", &Value::from(reason))?;
        answer.has_value("/code", &Value::from(code))?;
        answer.has_value("/status", &Value::from("Failure"))?;
        answer.has_value("/message", &Value::from(message))?;
        Ok(answer)
    }

    /// Like [`Response::expect_error`], for a message of which only a part is the server's promise.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] naming the first check that failed.
    pub fn expect_error_containing(
        self,
        code: u16,
        reason: &str,
        part: &str,
    ) -> Result<Self, CaseError> {
        let answer = self.expect(code)?.expect_kind("Status")?;
        answer.has_value("/reason", &Value::from(reason))?;
        let message = answer.string("/message");
        if message.contains(part) {
            return Ok(answer);
        }
        Err(unexpected(format!("message of {}", answer.request_line), format!("…{part}…"), message))
    }

    /// Checks the kind of the document.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if it is another one.
    pub fn expect_kind(self, kind: &str) -> Result<Self, CaseError> {
        self.has_value("/kind", &Value::from(kind))?;
        Ok(self)
    }

    /// Checks the value at a JSON pointer; null stands for absence.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if it is another one.
    pub fn has_value(&self, pointer: &str, expected: &Value) -> Outcome {
        let found = self.at(pointer);
        if found == expected {
            return Ok(());
        }
        Err(unexpected(format!("{pointer} of {}", self.request_line), line(expected), line(found)))
    }

    /// Checks several values at once.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] for the first that differs.
    pub fn has_values(&self, facts: &[(&str, Value)]) -> Outcome {
        facts.iter().try_for_each(|(pointer, expected)| self.has_value(pointer, expected))
    }

    /// Checks that nothing is at a JSON pointer.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if something is.
    pub fn has_no_value(&self, pointer: &str) -> Outcome {
        match self.json().pointer(pointer) {
            None => Ok(()),
            Some(found) => Err(unexpected(
                format!("{pointer} of {}", self.request_line),
                "nothing",
                line(found),
            )),
        }
    }

    /// Checks the first value of a header; an empty one stands for absence.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if it is another one.
    pub fn has_header(&self, name: &str, expected: &str) -> Outcome {
        let found = self.header(name).first().map_or("", String::as_str);
        if found == expected {
            return Ok(());
        }
        Err(unexpected(format!("header {name} of {}", self.request_line), expected, found))
    }

    /// Checks the texts of the Warning headers, in order.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if there are others.
    pub fn has_warnings(&self, texts: &[&str]) -> Outcome {
        let wrap = |text: &&str| format!("299 - \"{}\"", text.replace('"', "\\\""));
        let expected: Vec<String> = texts.iter().map(wrap).collect();
        let found = self.header("warning");
        if found == expected {
            return Ok(());
        }
        let what = format!("warnings of {}", self.request_line);
        Err(unexpected(what, expected.join("\n"), found.join("\n")))
    }

    /// Checks the causes of a Status as (field, reason, message), in any order.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if there are others.
    pub fn has_causes(&self, causes: &[(&str, &str, &str)]) -> Outcome {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
        let found = self.at("/details/causes").as_array().map(Vec::as_slice).unwrap_or_default();
        let mut found: Vec<_> = found
            .iter()
            .map(|it| [text(it.get("field")), text(it.get("reason")), text(it.get("message"))])
            .collect();
        let own = |it: &(&str, &str, &str)| [it.0.to_owned(), it.1.to_owned(), it.2.to_owned()];
        let mut expected: Vec<_> = causes.iter().map(own).collect();
        found.sort();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        let what = format!("causes of {}", self.request_line);
        Err(unexpected(what, format!("{expected:#?}"), format!("{found:#?}")))
    }

    /// The names of a list's items, or of a table's rows.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let (items, name) = match (self.at("/items"), self.at("/rows")) {
            (Value::Array(items), _) => (items.as_slice(), "/metadata/name"),
            (_, Value::Array(rows)) => (rows.as_slice(), "/object/metadata/name"),
            (_, _) => (&[][..], ""),
        };
        let text = |item: &Value| item.pointer(name).and_then(Value::as_str).map(str::to_owned);
        items.iter().filter_map(text).collect()
    }

    /// Checks the names of a list's items, in order.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if they are others.
    pub fn has_names(&self, expected: &[&str]) -> Outcome {
        let found = self.names();
        if found == expected {
            return Ok(());
        }
        let what = format!("names in {}", self.request_line);
        Err(unexpected(what, format!("{expected:?}"), format!("{found:?}")))
    }

    /// Checks a watch's events as (type, name), in order. A bookmark has no name.
    ///
    /// # Errors
    /// [`CaseError::Unexpected`] if they are others.
    pub fn has_events(&self, expected: &[(&str, &str)]) -> Outcome {
        let found: Vec<(String, String)> = self.events().iter().map(type_and_name).collect();
        let equal = |(found, expected): (&(String, String), &(&str, &str))| {
            found.0 == expected.0 && found.1 == expected.1
        };
        if found.len() == expected.len() && found.iter().zip(expected).all(equal) {
            return Ok(());
        }
        let what = format!("events of {}", self.request_line);
        Err(unexpected(what, format!("{expected:?}"), format!("{found:?}\n{self}")))
    }
}

/// The type of a watch event and the name of its object, which may be in a table's row.
fn type_and_name(event: &Value) -> (String, String) {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
    let name =
        text("/object/metadata/name").or_else(|| text("/object/rows/0/object/metadata/name"));
    (text("/type").unwrap_or_default().to_owned(), name.unwrap_or_default().to_owned())
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  < {}", self.status)?;
        for name in ["content-type", "warning"] {
            for value in self.header(name) {
                writeln!(f, "  < {name}: {value}")?;
            }
        }
        match &self.body {
            Body::Empty => Ok(()),
            Body::Json(value) => writeln!(f, "  < {}", line(value)),
            Body::Text(text) => writeln!(f, "  < {}", shortened(text)),
            Body::Events { events, ended } => {
                events.iter().try_for_each(|event| writeln!(f, "  < {}", line(event)))?;
                writeln!(f, "  < ({})", if *ended { "ended by the server" } else { "left" })
            }
        }
    }
}
