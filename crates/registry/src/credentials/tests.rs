use proptest::prelude::*;

use super::*;

fn basic(username: &str, password: &str) -> Credential {
    Credential::Basic { username: username.to_owned(), password: SecretText::new(password) }
}

fn found(file: &str, repository: &str) -> Result<Option<Credential>, CredentialError> {
    let file = CredentialFile::parse(file.as_bytes())?;
    file.find(&repository.parse().unwrap()).map(Option::<&Credential>::cloned)
}

#[test]
fn entries_are_read_in_every_form() {
    let auth = BASE64.encode("ann:se:cret");
    let zeros = BASE64.encode("ann:secret\0\0");
    let token = |text| SecretText::new(text);
    let table = [
        (r#"{"username":"ann","password":"x"}"#.to_owned(), Some(basic("ann", "x"))),
        (format!(r#"{{"auth":"{auth}"}}"#), Some(basic("ann", "se:cret"))),
        (format!(r#"{{"auth":"{}"}}"#, auth.trim_end_matches('=')), Some(basic("ann", "se:cret"))),
        (format!(r#"{{"auth":"{zeros}"}}"#), Some(basic("ann", "secret"))),
        (format!(r#"{{"username":"bob","auth":"{auth}"}}"#), Some(basic("ann", "se:cret"))),
        (
            format!(r#"{{"auth":"{auth}","identitytoken":"t"}}"#),
            Some(Credential::IdentityToken(token("t"))),
        ),
        (r#"{"registrytoken":"t"}"#.to_owned(), Some(Credential::RegistryToken(token("t")))),
        (r#"{"email":"a@b"}"#.to_owned(), None),
        ("{}".to_owned(), None),
        ("null".to_owned(), None),
    ];
    for (entry, expected) in table {
        let new = format!(r#"{{"auths":{{"q.io":{entry}}}}}"#);
        assert_eq!(found(&new, "q.io/a").unwrap(), expected, "{new}");
        let old = format!(r#"{{"q.io":{entry}}}"#);
        assert_eq!(found(&old, "q.io/a").unwrap(), expected, "{old}");
    }
    let refused = [
        ("", "it is not a JSON object"),
        ("[]", "it is not a JSON object"),
        (r#"{"auths":[]}"#, "auths is not an object"),
        (r#"{"auths":{"q.io":7}}"#, "the entry \"q.io\": it is not an object"),
        (r#"{"auths":{"q.io":{"auth":"!"}}}"#, "the entry \"q.io\": auth is not base64"),
        (r#"{"auths":{"q.io":{"auth":"YW5u"}}}"#, "the entry \"q.io\": auth has no colon"),
        (
            r#"{"auths":{"q.io":{"username":"ann"}}}"#,
            "the entry \"q.io\": user name and password must both be there",
        ),
    ];
    for (file, why) in refused {
        let error = CredentialFile::parse(file.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, format!("cannot read the registry credentials: {why}"));
    }
    assert!(CredentialFile::parse(&vec![b' '; MAX_FILE_BYTES + 1]).is_err());
}

#[test]
fn keys_match_hosts_ports_patterns_and_paths() {
    let table = [
        // key, repository, expected
        ("q.io", "q.io/a/b", true),
        ("Q.IO", "q.io/a", true),
        ("https://q.io", "q.io/a", true),
        ("http://q.io/v1/", "q.io/a", true),
        ("https://q.io/v2", "q.io/a", true),
        ("q.io:5000", "q.io:5000/a", true),
        ("q.io", "q.io:5000/a", false),
        ("q.io:5000", "q.io/a", false),
        ("q.io/a", "q.io/a", true),
        ("q.io/a", "q.io/a/b", true),
        ("q.io/a", "q.io/ab", false),
        ("q.io/a/b", "q.io/a", false),
        ("*.q.io", "x.q.io/a", true),
        ("*.q.io", "q.io/a", false),
        ("*.q.io", "x.y.q.io/a", false),
        ("a*b*c.io", "a1b2c.io/a", true),
        ("a*b*c.io", "a1c.io/a", false),
        ("*.io:5000", "q.io:5000/a", true),
        ("*", "q.io/a", false),
        ("docker.io", "nginx", true),
        ("https://index.docker.io/v1/", "nginx", true),
        ("registry-1.docker.io", "docker.io/library/nginx", true),
        ("docker.io/ann", "ann/x", true),
        ("docker.io/ann", "bob/x", false),
        ("", "q.io/a", false),
    ];
    for (key, repository, expected) in table {
        let parsed: Repository = repository.parse().unwrap();
        assert_eq!(KeyPattern::new(key).matches(&parsed), expected, "{key:?} for {repository}");
    }
}

#[test]
fn kms_44_the_longest_path_wins_in_a_file_and_files_are_tried_in_their_order() {
    let entry = |user: &str| format!(r#"{{"username":"{user}","password":"x"}}"#);
    let one = format!(
        r#"{{"auths":{{"q.io":{},"q.io/team":{},"*.io/team":{},"r.io":{}}}}}"#,
        entry("all"),
        entry("team"),
        entry("pattern"),
        entry("other")
    );
    assert_eq!(found(&one, "q.io/team/x").unwrap(), Some(basic("team", "x")));
    assert_eq!(found(&one, "q.io/x").unwrap(), Some(basic("all", "x")));
    assert_eq!(found(&one, "z.io/team").unwrap(), Some(basic("pattern", "x")));
    assert_eq!(found(&one, "z.com/team").unwrap(), None);
    let two = format!(r#"{{"q.io":{}}}"#, entry("second"));
    let parse = |text: &str| CredentialFile::parse(text.as_bytes()).unwrap();
    let files = [parse(r#"{"auths":{"else.io":{}}}"#), parse(&two), parse(&one)];
    let found = candidates(&files, &"q.io/team/x".parse().unwrap()).unwrap();
    assert_eq!(found, [basic("second", "x"), basic("team", "x")]);
}

#[test]
fn credential_helpers_are_refused_where_they_would_be_needed() {
    let file = r#"{"auths":{"q.io":{},"r.io":{"auth":"YTpi"}},"credsStore":"desktop",
        "credHelpers":{"h.io":"cloud"}}"#;
    let refused = |key: &str, name: &str| {
        Err(CredentialError::Helper { registry: key.to_owned(), helper: name.to_owned() })
    };
    assert_eq!(found(file, "q.io/a"), refused("q.io", "desktop"));
    assert_eq!(found(file, "h.io/a"), refused("h.io", "cloud"));
    assert_eq!(found(file, "r.io/a"), Ok(Some(basic("a", "b"))));
    assert_eq!(found(file, "public.io/a"), Ok(None));
    assert_eq!(
        found(file, "h.io/a").unwrap_err().to_string(),
        "cannot use the credentials for h.io: they are kept by the credential helper \"cloud\", \
         which is not run here; write auth, or username and password, into auths"
    );
}

proptest! {
    /// Secrets occur neither in debug output nor in errors.
    #[test]
    fn secrets_are_never_shown(secret in "[a-z]{12,20}", broken: bool) {
        let auth = BASE64.encode(format!("ann:{secret}"));
        let auth = if broken { format!("!{secret}") } else { auth };
        let file = format!(
            r#"{{"auths":{{"a":{{"auth":"{auth}"}},"b":{{"registrytoken":"{secret}"}},
               "c":{{"identitytoken":"{secret}"}}}}}}"#
        );
        let shown = format!("{:?}", CredentialFile::parse(file.as_bytes()));
        prop_assert!(!shown.contains(&secret) && !shown.contains(&auth), "{}", shown);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = CredentialFile::parse(&bytes);
    }

    #[test]
    fn patterns_never_panic(pattern in "[a*.:/\\[\\]]{0,12}") {
        let _ = KeyPattern::new(&pattern).matches(&"a.a:1/a".parse().unwrap());
    }
}
