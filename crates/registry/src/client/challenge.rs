//! Reads what a registry wants as authentication: the header `WWW-Authenticate`.

/// How a registry wants a client to authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// With a token that the endpoint `realm` issues.
    Bearer {
        /// The URL of the token endpoint.
        realm: String,
        /// The name of the registry at that endpoint.
        service: Option<String>,
        /// What the token must allow, separated by spaces.
        scope: Option<String>,
    },
    /// With user name and password.
    Basic,
}

/// The longest header that is read; registries send a few hundred bytes.
const MAX_HEADER_BYTES: usize = 8 << 10;
/// The largest number of parameters that are read over all challenges of a header.
const MAX_PARAMETERS: usize = 64;

/// Returns the challenges of one header, in its order. Schemes other than Bearer and Basic, and
/// Bearer without a realm, are left out.
#[must_use]
pub fn parse_challenges(header: &str) -> Vec<Challenge> {
    if header.len() > MAX_HEADER_BYTES {
        return Vec::new();
    }
    let mut rest = header;
    let mut challenges: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut parameters = 0;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some((name, after)) = token(rest) else { break };
        let after_spaces = after.trim_start_matches([' ', '\t']);
        // A name with `=` behind it is a parameter of the challenge before it, otherwise it is the
        // scheme of the next challenge.
        match (after_spaces.strip_prefix('='), challenges.last_mut()) {
            (Some(after_equals), Some((_, found))) => {
                let Some((value, after)) = value(after_equals.trim_start_matches([' ', '\t']))
                else {
                    break;
                };
                parameters += 1;
                if parameters > MAX_PARAMETERS {
                    break;
                }
                found.push((name.to_ascii_lowercase(), value));
                rest = after;
            }
            (Some(_), None) => break,
            (None, _) => {
                challenges.push((name.to_ascii_lowercase(), Vec::new()));
                rest = after;
            }
        }
    }
    challenges.into_iter().filter_map(|(scheme, found)| challenge(&scheme, &found)).collect()
}

fn challenge(scheme: &str, parameters: &[(String, String)]) -> Option<Challenge> {
    let get = |wanted: &str| {
        let found = parameters.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    match scheme {
        "bearer" => {
            let (service, scope) = (get("service"), get("scope"));
            Some(Challenge::Bearer { realm: get("realm")?, service, scope })
        }
        "basic" => Some(Challenge::Basic),
        _ => None,
    }
}

/// Splits off a token (RFC 9110, 5.6.2).
fn token(text: &str) -> Option<(&str, &str)> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c| !is_token(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Splits off the value of a parameter: a quoted string, or anything up to the next separator.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[index + 1..])),
            '\\' => value.push(characters.next()?.1),
            character => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let owned = |it: Option<&str>| it.map(str::to_owned);
        Challenge::Bearer { realm: realm.to_owned(), service: owned(service), scope: owned(scope) }
    }

    #[test]
    fn challenges_are_read_in_every_form_that_registries_send() {
        let full = bearer("https://a/token", Some("r"), Some("repository:x:pull,push"));
        let table = [
            ("", vec![]),
            ("Basic", vec![Challenge::Basic]),
            ("basic realm=\"Registry Realm\"", vec![Challenge::Basic]),
            (
                "Bearer realm=\"https://a/token\",service=\"r\",scope=\"repository:x:pull,push\"",
                vec![full.clone()],
            ),
            (
                "BEARER Scope=\"repository:x:pull,push\" , Realm = \"https://a/token\", service=r",
                vec![full],
            ),
            (
                "Negotiate, Basic realm=x, Bearer realm=https://a/t",
                vec![Challenge::Basic, bearer("https://a/t", None, None)],
            ),
            ("Bearer service=\"r\"", vec![]),
            ("Bearer realm=\"\"", vec![]),
            ("Bearer realm=\"a\\\"b\\\\\"", vec![bearer("a\"b\\", None, None)]),
            ("Bearer realm=\"never closed", vec![]),
            ("realm=\"x\"", vec![]),
            ("Bearer realm=\"x\"garbage", vec![bearer("x", None, None)]),
            ("Digest realm=\"x\", nonce=\"y\", Basic realm=\"z\"", vec![Challenge::Basic]),
        ];
        for (header, expected) in table {
            assert_eq!(parse_challenges(header), expected, "{header}");
        }
        let long = format!("Bearer realm=\"{}\"", "x".repeat(MAX_HEADER_BYTES));
        assert_eq!(parse_challenges(&long), []);
        let many = format!("Bearer realm=x{}", ",a=b".repeat(1000));
        assert_eq!(parse_challenges(&many), [bearer("x", None, None)]);
    }

    proptest! {
        /// What is quoted as the grammar wants is read back unchanged, whatever stands beside it.
        #[test]
        fn quoted_values_are_read_back(realm in "[ -~]{1,40}", before in "(Digest x=y, )?") {
            let quoted = realm.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("{before}Bearer service=s, realm=\"{quoted}\", a=b");
            prop_assert_eq!(parse_challenges(&header), vec![bearer(&realm, Some("s"), None)]);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,80}") {
            let _ = parse_challenges(&text);
        }
    }
}
