//! Tokens from a file, in the format of kube-apiserver: `token,user,uid,"group,group"`.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Digest, SHA256, digest};

/// The tokens of a file. Only their digests are kept.
#[derive(Clone, Default)]
pub struct StaticTokens(Vec<(Digest, StaticUser)>);

/// The user that a token of the file authenticates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticUser {
    /// The name.
    pub name: String,
    /// The UID; may be empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// What is wrong with a token file, and on which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TokenFileError {
    /// The line, counted from one.
    pub line: usize,
    /// What is wrong with it. Never shows a token.
    pub why: String,
}

impl fmt::Debug for StaticTokens {
    /// Shows the users, never the tokens.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(_, user)| &user.name)).finish()
    }
}

impl StaticTokens {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// A line is not CSV, has fewer than three columns, has no token or no user, or repeats a
    /// token.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Self::default();
        let mut lines: Vec<usize> = Vec::new();
        for (line, record) in csv_records(text)? {
            let fault = |why: String| TokenFileError { line, why };
            let [token, name, uid, rest @ ..] = record.as_slice() else {
                let count = record.len();
                let wanted = "write token,user,uid and perhaps \"group,group\"";
                return Err(fault(format!("{count} of at least 3 columns; {wanted}")));
            };
            if token.is_empty() || name.is_empty() {
                let what = if token.is_empty() { "token" } else { "user" };
                return Err(fault(format!("the {what} is empty")));
            }
            if token.contains(char::is_whitespace) {
                return Err(fault("a token must not contain spaces".to_owned()));
            }
            let digest = digest(&SHA256, token.as_bytes());
            if let Some(place) = tokens.index_of(&digest) {
                let first = lines.get(place).copied().unwrap_or_default();
                return Err(fault(format!("the token is also that of line {first}")));
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default().split(',');
            let groups = groups.filter(|group| !group.is_empty()).map(str::to_owned).collect();
            tokens.0.push((digest, StaticUser { name: name.clone(), uid: uid.clone(), groups }));
            lines.push(line);
        }
        Ok(tokens)
    }

    /// Returns the user of a token.
    ///
    /// Digests are compared, each to its end and all of them, so that the time it takes reveals
    /// nothing about any token.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<&StaticUser> {
        let place = self.index_of(&digest(&SHA256, token.as_bytes()))?;
        self.0.get(place).map(|(_, user)| user)
    }

    fn index_of(&self, shown: &Digest) -> Option<usize> {
        let mut found = None;
        for (place, (known, _)) in self.0.iter().enumerate() {
            if verify_slices_are_equal(known.as_ref(), shown.as_ref()).is_ok() {
                found = Some(place);
            }
        }
        found
    }
}

/// Iterates over the CSV records and the lines they begin on; empty lines are skipped.
fn csv_records(text: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let mut records = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let start = line;
        let mut record = Vec::new();
        loop {
            let (field, after) = csv_field(rest, &mut line)?;
            record.push(field);
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None => {
                    rest = after;
                    break;
                }
            }
        }
        if let Some(after) = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')) {
            rest = after;
            line += 1;
        }
        if record != [""] {
            records.push((start, record));
        }
    }
    Ok(records)
}

/// Reads the next field and what follows: a comma, the end of the line, or nothing.
fn csv_field<'a>(text: &'a str, line: &mut usize) -> Result<(String, &'a str), TokenFileError> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let (mut field, mut after) = text.split_at(end);
        if after.starts_with('\n') && field.ends_with('\r') {
            (field, after) = text.split_at(end - 1);
        }
        if field.contains('"') {
            let why = "a quote in a field that is not in quotes".to_owned();
            return Err(TokenFileError { line: *line, why });
        }
        return Ok((field.to_owned(), after));
    };
    let (mut field, start) = (String::new(), *line);
    loop {
        let Some((inside, after)) = rest.split_once('"') else {
            let why = "the quote is not closed".to_owned();
            return Err(TokenFileError { line: start, why });
        };
        *line += inside.matches('\n').count();
        field.push_str(inside);
        let Some(more) = after.strip_prefix('"') else {
            let ends = after.is_empty() || after.starts_with([',', '\n']);
            if ends || after.starts_with("\r\n") {
                return Ok((field, after));
            }
            let why = "text after a closing quote".to_owned();
            return Err(TokenFileError { line: *line, why });
        };
        field.push('"');
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(name: &str, uid: &str, groups: &[&str]) -> StaticUser {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        StaticUser { name: name.to_owned(), uid: uid.to_owned(), groups }
    }

    #[test]
    fn tokens_map_to_their_users() {
        let text =
            "abc,bob,7,\"devs,ops\"\r\n\n\"d\"\"e\",\"eve, the\nfirst\",\nf,kim,8,one\ng,al,9,";
        let tokens = StaticTokens::parse(text).unwrap();
        let table = [
            ("abc", Some(user("bob", "7", &["devs", "ops"]))),
            ("d\"e", Some(user("eve, the\nfirst", "", &[]))),
            ("f", Some(user("kim", "8", &["one"]))),
            ("g", Some(user("al", "9", &[]))),
            ("", None),
            ("ab", None),
            ("abcd", None),
            ("ABC", None),
        ];
        for (token, expected) in table {
            assert_eq!(tokens.find(token), expected.as_ref(), "{token}");
        }
        assert_eq!(format!("{tokens:?}"), r#"["bob", "eve, the\nfirst", "kim", "al"]"#);
    }

    #[test]
    fn errors_name_their_line() {
        let columns = "of at least 3 columns; write token,user,uid and perhaps \"group,group\"";
        let table = [
            ("a,b\n", format!("line 1: 2 {columns}")),
            ("a,b,c\n\nd", format!("line 3: 1 {columns}")),
            ("a,\"x\ny\",c\n,b,c", "line 3: the token is empty".to_owned()),
            ("a,,c", "line 1: the user is empty".to_owned()),
            ("a b,c,d", "line 1: a token must not contain spaces".to_owned()),
            ("a,b,c\nb,b,c\na,x,y", "line 3: the token is also that of line 1".to_owned()),
            ("a,b,c\nb\"b,b,c", "line 2: a quote in a field that is not in quotes".to_owned()),
            ("a,b,c\n\"b\"b,b,c", "line 2: text after a closing quote".to_owned()),
            ("a,b,\"c\n\n", "line 1: the quote is not closed".to_owned()),
        ];
        for (text, expected) in table {
            assert_eq!(StaticTokens::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        assert!(StaticTokens::parse("").unwrap().find("").is_none());
    }

    proptest! {
        /// Quoting a field preserves whatever it contains.
        #[test]
        fn quoted_fields_are_read_back(fields in prop::collection::vec(".{0,9}", 1..5)) {
            let quoted = fields.iter().map(|it| format!("\"{}\"", it.replace('"', "\"\"")));
            let text = quoted.collect::<Vec<_>>().join(",");
            let expected = if fields == [""] { vec![] } else { vec![(1, fields)] };
            prop_assert_eq!(csv_records(&text).unwrap(), expected);
        }

        /// Any text is either parsed or refused, without a panic.
        #[test]
        fn any_text_is_read_or_refused(text in "[a,\"\n\r ]{0,40}") {
            let _ = StaticTokens::parse(&text);
        }
    }
}
