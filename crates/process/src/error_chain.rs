//! Formats an error together with its causes, for logs and messages.

use std::error::Error;

/// Joins an error and its sources with `": "`, outermost first.
///
/// A cause whose text already occurs in what was written is left out: many errors repeat their
/// source in their own message, and readers should see each statement once.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    struct Link {
        message: &'static str,
        source: Option<Box<Link>>,
    }

    /// An error whose causes have these messages, outermost first.
    fn nested(messages: &[&'static str]) -> Link {
        let (message, causes) = messages.split_first().unwrap();
        let source = (!causes.is_empty()).then(|| Box::new(nested(causes)));
        Link { message, source }
    }

    #[test]
    fn causes_are_joined_and_none_is_repeated() {
        let table: [(&[&'static str], &str); 7] = [
            (&["could not connect"], "could not connect"),
            (&["could not connect", "connection refused"], "could not connect: connection refused"),
            (&["a", "b", "c"], "a: b: c"),
            // A wrapper that repeats its cause.
            (&["read failed: EOF", "EOF"], "read failed: EOF"),
            // One that is transparent.
            (&["EOF", "EOF", "socket 7"], "EOF: socket 7"),
            // What follows a repeated cause is still shown.
            (
                &["tls: bad certificate", "bad certificate", "expired"],
                "tls: bad certificate: expired",
            ),
            // An empty message adds nothing, not even a separator.
            (&["a", "", "b"], "a: b"),
        ];
        for (messages, expected) in table {
            assert_eq!(error_chain(&nested(messages)), expected, "{messages:?}");
        }
    }
}
