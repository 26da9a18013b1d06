use aws_lc_rs::encoding::AsDer as _;
use proptest::prelude::*;

use super::*;
use crate::claims::{KubernetesClaim, Reference};

const ISSUER: &str = "https://issuer";

/// A new key, which no other test has.
fn key() -> Key {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let der = pair.to_pkcs8v1().unwrap();
    let text = STANDARD.encode(der.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
    Key::from_pem(&pem).unwrap()
}

fn claims() -> Claims {
    Claims {
        audiences: vec!["a".to_owned()],
        expires: 20,
        issued: 10,
        issuer: ISSUER.to_owned(),
        id: "j".to_owned(),
        account: KubernetesClaim {
            namespace: "n".to_owned(),
            serviceaccount: Reference { name: "s".to_owned(), uid: "u".to_owned() },
            ..KubernetesClaim::default()
        },
        not_before: 10,
        subject: "system:serviceaccount:n:s".to_owned(),
    }
}

fn part(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

#[test]
fn signed_claims_are_verified() {
    let key = key();
    let token = key.sign(&claims()).unwrap();
    assert_eq!(key.verify(&token, ISSUER), Ok(claims()));
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let expected = r#"{"aud":["a"],"exp":20,"iat":10,"iss":"https://issuer","jti":"j","kubernetes.io":{"namespace":"n","serviceaccount":{"name":"s","uid":"u"}},"nbf":10,"sub":"system:serviceaccount:n:s"}"#;
    assert_eq!(String::from_utf8(claims).unwrap(), expected);
}

#[test]
fn a_key_is_named_by_its_public_half() {
    let key = key();
    let described = key.pair.public_key().as_der().unwrap();
    assert_eq!(
        key.id(),
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, described.as_ref()))
    );
    let set = key.jwks();
    let half = |name: &str| URL_SAFE_NO_PAD.decode(set["keys"][0][name].as_str().unwrap()).unwrap();
    let point = [vec![4], half("x"), half("y")].concat();
    assert_eq!(point, key.pair.public_key().as_ref());
    assert_eq!(
        (&set["keys"][0]["alg"], &set["keys"][0]["kid"]),
        (&json!("ES256"), &json!(key.id()))
    );
    assert!(!format!("{key:?}").contains("PRIVATE"));
}

/// `foreign.json` was written by other implementations, with a key that nothing else uses: what
/// they sign is verified here, and the key has the ID and the key set that Kubernetes gives it.
#[test]
fn tokens_of_other_implementations_are_verified() {
    let foreign: Value = serde_json::from_str(include_str!("foreign.json")).unwrap();
    let key = Key::from_pem(foreign["key"].as_str().unwrap()).unwrap();
    assert_eq!(key.id(), foreign["keyId"]);
    assert_eq!(key.jwks().to_string(), foreign["jwks"].to_string());
    for (made_by, token) in foreign["tokens"].as_object().unwrap() {
        let token = token.as_str().unwrap();
        assert_eq!(key.verify(token, ISSUER), Ok(claims()), "{made_by}");
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let changed = format!("{signed}.B{}", &signature[1..]);
        assert_eq!(key.verify(&changed, ISSUER), Err(TokenError::Signature), "{made_by}");
    }
}

#[test]
fn only_a_p256_key_signs() {
    let begin = "-----BEGIN PRIVATE KEY-----";
    for text in ["", begin, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "x"] {
        assert_eq!(Key::from_pem(text).unwrap_err(), KeyError, "{text}");
    }
}

#[test]
fn forgeries_are_refused() {
    let (key, other) = (key(), key());
    let token = key.sign(&claims()).unwrap();
    let [header, body, signature] = token.split('.').collect::<Vec<_>>().try_into().unwrap();
    let id = key.id();
    let head = |text: String| format!("{}.{body}.{signature}", part(&text));
    let admin =
        part(&serde_json::to_string(&Claims { subject: "admin".into(), ..claims() }).unwrap());
    let elsewhere = Claims { issuer: "other".to_owned(), ..claims() };
    // The signature of an empty message by a key of nothing: r and s are zero.
    let zero = URL_SAFE_NO_PAD.encode([0; 64]);
    let deep = format!(r#"{{"iss":"{ISSUER}","x":{}"#, "[".repeat(100_000));
    let twice = format!(r#"{{"iss":"other","iss":"{ISSUER}"}}"#);
    let table = [
        ("no algorithm", head(r#"{"alg":"none"}"#.into()), TokenError::Signature),
        (
            "no algorithm and no signature",
            format!("{}.{body}.", part(r#"{"alg":"none"}"#)),
            TokenError::Signature,
        ),
        ("no algorithm in capitals", head(r#"{"alg":"NONE"}"#.into()), TokenError::Signature),
        (
            "a shared secret",
            head(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#)),
            TokenError::Signature,
        ),
        (
            "another curve",
            head(format!(r#"{{"alg":"ES384","kid":"{id}"}}"#)),
            TokenError::Signature,
        ),
        ("an empty header", head("{}".into()), TokenError::Signature),
        ("another header", head(r#"{"alg":"ES256"}"#.into()), TokenError::Signature),
        (
            "something critical",
            head(format!(r#"{{"alg":"ES256","kid":"{id}","crit":["b64"],"b64":false}}"#)),
            TokenError::Signature,
        ),
        (
            "a key of the token's own",
            head(r#"{"alg":"ES256","jwk":{"kty":"EC"}}"#.into()),
            TokenError::Signature,
        ),
        ("another key's name", head(r#"{"alg":"ES256","kid":"x"}"#.into()), TokenError::UnknownKey),
        ("another key", other.sign(&claims()).unwrap(), TokenError::UnknownKey),
        ("a header that is a list", head("[]".into()), TokenError::OtherIssuer),
        ("a header that is no text", head("\u{0}".into()), TokenError::OtherIssuer),
        ("other claims", format!("{header}.{admin}.{signature}"), TokenError::Signature),
        ("another issuer", key.sign(&elsewhere).unwrap(), TokenError::OtherIssuer),
        ("zeros", format!("{header}.{body}.{zero}"), TokenError::Signature),
        (
            "half a signature",
            format!("{header}.{body}.{}", &signature[..40]),
            TokenError::Signature,
        ),
        ("no signature", format!("{header}.{body}."), TokenError::Signature),
        ("two parts", format!("{header}.{body}"), TokenError::OtherIssuer),
        ("four parts", format!("{token}.x"), TokenError::OtherIssuer),
        ("encrypted", format!("{token}.x.y"), TokenError::OtherIssuer),
        ("padding", format!("{header}.{body}.{signature}=="), TokenError::OtherIssuer),
        ("another alphabet", format!("{header}.{body}.++//"), TokenError::OtherIssuer),
        ("a line break", format!("{header}.{body}.{signature}\n"), TokenError::OtherIssuer),
        ("nested deeply", format!("{header}.{}.{signature}", part(&deep)), TokenError::OtherIssuer),
        ("two issuers", format!("{header}.{}.{signature}", part(&twice)), TokenError::OtherIssuer),
        ("dots", "..".to_owned(), TokenError::OtherIssuer),
        ("nothing", String::new(), TokenError::OtherIssuer),
        ("a megabyte", "a".repeat(1 << 20), TokenError::OtherIssuer),
    ];
    for (why, token, expected) in table {
        assert_eq!(key.verify(&token, ISSUER), Err(expected), "{why}");
    }
}

/// Makes a token with any header, signed by the key all the same.
fn headed(key: &Key, header: &Value) -> String {
    let claims = part(&serde_json::to_string(&claims()).unwrap());
    let signed = format!("{}.{claims}", part(&header.to_string()));
    let signature = key.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn a_token_does_not_choose_how_it_is_checked() {
    let key = key();
    let id = key.id();
    let table = [
        ("as it is made", json!({ "alg": "ES256", "kid": id }), Ok(claims())),
        ("without the key's name", json!({ "alg": "ES256" }), Ok(claims())),
        ("with more said", json!({ "alg": "ES256", "typ": "JWT" }), Ok(claims())),
        ("none", json!({ "alg": "none", "kid": id }), Err(TokenError::Signature)),
        ("in small letters", json!({ "alg": "es256", "kid": id }), Err(TokenError::Signature)),
        ("a shared secret", json!({ "alg": "HS256", "kid": id }), Err(TokenError::Signature)),
        ("nothing said", json!({ "kid": id }), Err(TokenError::Signature)),
        ("critical", json!({ "alg": "ES256", "crit": [] }), Err(TokenError::Signature)),
        ("another key", json!({ "alg": "ES256", "kid": "x" }), Err(TokenError::UnknownKey)),
        ("no word", json!({ "alg": 7 }), Err(TokenError::OtherIssuer)),
    ];
    for (why, header, expected) in table {
        assert_eq!(key.verify(&headed(&key, &header), ISSUER), expected, "{why}");
    }
}

proptest! {
    /// A token in which anything was changed is refused.
    #[test]
    fn changed_tokens_are_refused(place in any::<prop::sample::Index>(), letter in "[A-Za-z0-9_.-]") {
        let key = key();
        let token = key.sign(&claims()).unwrap();
        let place = place.index(token.len());
        let changed = format!("{}{letter}{}", &token[..place], &token[place + 1..]);
        prop_assert_eq!(key.verify(&changed, ISSUER).is_ok(), changed == token);
    }

    /// Any text is refused without a panic.
    #[test]
    fn arbitrary_text_is_refused(text in ".{0,80}") {
        prop_assert!(key().verify(&text, ISSUER).is_err());
    }
}
