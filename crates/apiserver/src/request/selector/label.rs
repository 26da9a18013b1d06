//! Label selectors: their grammar, their errors in the words of Kubernetes, and whether labels
//! match.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gantry_schema::FieldError;
use regex::Regex;

/// Requirements that labels must all meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Parses a selector; an empty string selects everything.
    ///
    /// # Errors
    /// The unexpected token, in the words of Kubernetes.
    pub fn read(text: &str) -> Result<Self, String> {
        Parser { tokens: tokens(text), position: 0 }.selector().map(Self)
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels meet every requirement.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&String>) -> bool {
        match (&self.test, value) {
            (Operator::Exists, value) => value.is_some(),
            (Operator::Absent, value) => value.is_none(),
            (Operator::In(values), Some(value)) => values.contains(value),
            (Operator::NotIn(values), Some(value)) => !values.contains(value),
            (Operator::NotIn(_), None) => true,
            (Operator::Above(least), Some(value)) => value.parse().is_ok_and(|it: i64| it > *least),
            (Operator::Below(most), Some(value)) => value.parse().is_ok_and(|it: i64| it < *most),
            (Operator::In(_) | Operator::Above(_) | Operator::Below(_), None) => false,
        }
    }
}

/// A token of a selector. Words include `in` and `notin`: only their position makes them operators.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
            Self::End => "",
        }
    }
}

/// The white space between tokens.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

fn tokens(text: &str) -> Vec<Token> {
    const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut found = Vec::new();
    // Not `trim`: in the grammar, other white space of Unicode is part of a word. A zero byte ends
    // the text where a token could start, and otherwise only the token before it.
    let mut rest = text.trim_start_matches(SPACE);
    while !rest.is_empty() && !rest.starts_with('\0') {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            found.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let special = |it: char| SPACE.contains(&it) || "=!(),><\0".contains(it);
            let end = rest.find(special).unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.strip_prefix('\0').unwrap_or(rest).trim_start_matches(SPACE);
    }
    found.push(Token::End);
    found
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.position).unwrap_or(&Token::End)
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    fn selector(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Sign("!") => {
                    let requirement = self.requirement();
                    requirements.push(
                        requirement.map_err(|it| format!("unable to parse requirement: {it}"))?,
                    );
                    match self.advance() {
                        Token::End => break,
                        Token::Sign(",") => match self.peek() {
                            Token::Word(_) | Token::Sign("!") => {}
                            other => {
                                let found = other.text();
                                return Err(format!(
                                    "found '{found}', expected: identifier after ','"
                                ));
                            }
                        },
                        other => {
                            let found = other.text();
                            return Err(format!(
                                "found '{found}', expected: ',' or 'end of string'"
                            ));
                        }
                    }
                }
                Token::End => break,
                other @ Token::Sign(_) => {
                    let found = other.text();
                    return Err(format!(
                        "found '{found}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
        }
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = *self.peek() == Token::Sign("!");
        if absent {
            self.advance();
        }
        let key = match self.advance() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check_key(&key)?;
        if absent {
            return Ok(Requirement { key, test: Operator::Absent });
        }
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return Ok(Requirement { key, test: Operator::Exists });
        }
        let operator = self.advance();
        let test = match &operator {
            Token::Sign("=" | "==") => Operator::In(vec![self.exact_value()?]),
            Token::Sign("!=") => Operator::NotIn(vec![self.exact_value()?]),
            Token::Sign(">") => Operator::Above(self.number()?),
            Token::Sign("<") => Operator::Below(self.number()?),
            Token::Word(word) if word == "in" => Operator::In(self.values()?),
            Token::Word(word) if word == "notin" => Operator::NotIn(self.values()?),
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        if let Operator::In(values) | Operator::NotIn(values) = &test {
            for (place, value) in values.iter().enumerate() {
                check_value(&key, place, value)?;
            }
        }
        Ok(Requirement { key, test })
    }

    /// Parses one value; no token is the empty value.
    fn exact_value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(_) => Ok(self.advance().text().to_owned()),
            other @ Token::Sign(_) => {
                Err(format!("found '{}', expected: identifier", other.text()))
            }
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let text = self.exact_value()?;
        text.parse().map_err(|_| {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            FieldError::invalid("values[0]", &text.clone().into(), detail).to_string()
        })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.advance();
        if open != Token::Sign("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        loop {
            match self.advance() {
                Token::Word(word) => {
                    values.push(word);
                    match self.advance() {
                        Token::Sign(",") => {}
                        Token::Sign(")") => break,
                        other => {
                            return Err(format!("found '{}', expected: ',' or ')'", other.text()));
                        }
                    }
                }
                // No token between two signs is the empty value.
                Token::Sign(",") => values.push(String::new()),
                Token::Sign(")") => {
                    values.push(String::new());
                    break;
                }
                other => {
                    let found = other.text();
                    return Err(format!("found '{found}', expected: ',', ')' or identifier"));
                }
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

static NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$").ok());
static SUBDOMAIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").ok()
});

fn fits(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_none_or(|pattern| pattern.is_match(text))
}

fn check_key(key: &str) -> Result<(), String> {
    let fault = |detail: &str| Err(FieldError::invalid("<nil>", &key.into(), detail).to_string());
    let name = match key.split_once('/') {
        Some((prefix, name)) => {
            if prefix.is_empty() {
                return fault("prefix part must be non-empty");
            }
            if prefix.len() > 253 || !fits(&SUBDOMAIN, prefix) {
                return fault(
                    "prefix part a lowercase RFC 1123 subdomain must consist of lower case \
                     alphanumeric characters, '-' or '.', and must start and end with an \
                     alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                );
            }
            name
        }
        None => key,
    };
    if name.is_empty() {
        return fault("name part must be non-empty");
    }
    if name.len() > 63 {
        return fault("name part must be no more than 63 bytes");
    }
    if !fits(&NAME, name) {
        return fault(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
             and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
             regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        );
    }
    Ok(())
}

fn check_value(key: &str, place: usize, value: &str) -> Result<(), String> {
    let fault = |detail: &str| {
        let field = format!("values[{place}][{key}]");
        Err(FieldError::invalid(field, &value.into(), detail).to_string())
    };
    if value.len() > 63 {
        return fault("must be no more than 63 bytes");
    }
    if !value.is_empty() && !fits(&NAME, value) {
        return fault(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
             or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn selectors_match_labels() {
        let one = labels(&[("l", "1"), ("n", "5")]);
        let none = labels(&[]);
        let table = [
            ("", true, true),
            ("l", true, false),
            ("!l", false, true),
            ("l=1", true, false),
            ("l == 1", true, false),
            ("l!=1", false, true),
            ("l in (1,2)", true, false),
            ("l notin (1)", false, true),
            ("l notin ()", true, true),
            ("n>4,n<6", true, false),
            ("n>5", false, false),
            ("l=", false, false),
            ("in in (a)", false, false),
            ("\u{0}(nonsense", true, true),
            ("l=\u{0}1", true, false),
        ];
        for (text, with, without) in table {
            let selector = LabelSelector::read(text).unwrap();
            assert_eq!(
                (selector.matches(&one), selector.matches(&none)),
                (with, without),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_have_kubernetes_messages() {
        let table = [
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a===b", "unable to parse requirement: found '=', expected: identifier"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("=b", "found '=', expected: !, identifier, or 'end of string'"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "a=\u{a0}b",
                "unable to parse requirement: values[0][a]: Invalid value: \"\u{a0}b\": a \
                valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
                or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                'my_value',  or '12345', regex used for validation is \
                '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            ("a,,b", "found ',', expected: identifier after ','"),
            ("(", "found '(', expected: !, identifier, or 'end of string'"),
            (
                "a>5x",
                "unable to parse requirement: values[0]: Invalid value: \"5x\": for 'Gt', 'Lt' \
                 operators, the value must be an integer",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(LabelSelector::read(text).unwrap_err(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_causes_no_panic(text in "[a-z!=<>(), 1./]{0,40}") {
            let _ = LabelSelector::read(&text);
        }
    }
}
