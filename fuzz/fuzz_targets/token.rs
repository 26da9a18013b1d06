//! Tokens of random headers and claims, signed and then changed: one that is verified is also
//! verified by another implementation, with the same claims; one that we signed, by both.
#![no_main]

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_fuzz::or_skip;
use gantry_token::{Claims, Key, KubernetesClaim, Reference};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Validation, crypto, decode};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

const ISSUER: &str = "https://issuer";

/// A key that nothing else uses.
const FOREIGN: &str = include_str!("../../crates/token/src/key/foreign.json");

struct Keys {
    ours: Key,
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let foreign: Value = serde_json::from_str(FOREIGN).expect("JSON");
    let pem = foreign["key"].as_str().expect("PEM");
    let public = &foreign["jwks"]["keys"][0];
    let half = |name: &str| public[name].as_str().expect("half a point");
    // The claims are compared, and what they mean is checked later: the signature is the question.
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.set_issuer(&[ISSUER]);
    Keys {
        ours: Key::from_pem(pem).expect("a P-256 key"),
        signing: EncodingKey::from_ec_pem(pem.as_bytes()).expect("a P-256 key"),
        verifying: DecodingKey::from_ec_components(half("x"), half("y")).expect("a point"),
        validation,
    }
});

fn header(u: &mut Unstructured<'_>) -> Result<Value> {
    let mut header = Map::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let (name, value) = match u.int_in_range(0..=8)? {
            0..=3 => ("alg", json!("ES256")),
            4 => ("alg", json!(*u.choose(&["none", "HS256", "ES384", "es256", ""])?)),
            5 => ("kid", json!(KEYS.ours.id())),
            6 => ("kid", json!(*u.choose(&["", "x"])?)),
            7 => ("crit", json!([])),
            // Text only: the other implementation also checks the types of headers it ignores.
            _ => (*u.choose(&["typ", "cty", "b64", "alg"])?, json!("JWT")),
        };
        header.insert(name.to_owned(), value);
    }
    Ok(header.into())
}

fn claims(u: &mut Unstructured<'_>) -> Result<Claims> {
    Ok(Claims {
        audiences: u.arbitrary()?,
        expires: u.arbitrary()?,
        issued: u.arbitrary()?,
        issuer: u.choose(&[ISSUER, ISSUER, "other"])?.to_string(),
        id: u.arbitrary()?,
        account: KubernetesClaim {
            namespace: u.arbitrary()?,
            serviceaccount: Reference { name: u.arbitrary()?, uid: u.arbitrary()? },
            warnafter: u.arbitrary()?,
            ..KubernetesClaim::default()
        },
        not_before: u.arbitrary()?,
        subject: u.arbitrary()?,
    })
}

/// The claims that the other implementation reads, if it verifies the token.
fn foreign(token: &str) -> Option<Claims> {
    decode(token, &KEYS.verifying, &KEYS.validation).ok().map(|it| it.claims)
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let (header, claims) = (or_skip!(header(&mut u)), or_skip!(claims(&mut u)));
    let part = |text: String| URL_SAFE_NO_PAD.encode(text);
    let body = serde_json::to_string(&claims).expect("claims are JSON");
    let signed = format!("{}.{}", part(header.to_string()), part(body));
    let signature = crypto::sign(signed.as_bytes(), &KEYS.signing, Algorithm::ES256);
    let mut token = format!("{signed}.{}", signature.expect("the system has random numbers"));
    if or_skip!(u.arbitrary()) {
        let at = or_skip!(u.choose_index(token.len()));
        let letter = *or_skip!(u.choose(b"AZaz09_-.=+ ")) as char;
        token.replace_range(at..=at, letter.encode_utf8(&mut [0; 4]));
    }
    if let Ok(verified) = KEYS.ours.verify(&token, ISSUER) {
        assert_eq!(foreign(&token), Some(verified), "{token}");
    }
    let ours = KEYS.ours.sign(&claims).expect("the system has random numbers");
    let expected = (claims.issuer == ISSUER).then_some(claims);
    assert_eq!(KEYS.ours.verify(&ours, ISSUER).ok(), expected);
    assert_eq!(foreign(&ours), expected);
    let _ = KEYS.ours.verify(&String::from_utf8_lossy(data), ISSUER);
});
