//! Percent-encoding of paths and query strings.

/// Decodes `%XX`; what is not an escape stays as it is. `None` if the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let escape = (bytes[index] == b'%').then(|| text.get(index + 1..index + 3)).flatten();
        let value = escape
            .filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|it| u8::from_str_radix(it, 16).ok());
        decoded.push(value.unwrap_or(bytes[index]));
        index += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).ok()
}

/// Encodes everything but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Returns the first value of a query parameter.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    query?.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then(|| decode(&value.replace('+', " "))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_and_escapes() {
        let query = Some("a=1&digest=sha256%3Aab&b&a=2&c=x+y&bad=%ff&odd=%zz%4");
        let get = |name| parameter(query, name);
        assert_eq!(get("a").as_deref(), Some("1"));
        assert_eq!(get("digest").as_deref(), Some("sha256:ab"));
        assert_eq!(get("b").as_deref(), Some(""));
        assert_eq!(get("c").as_deref(), Some("x y"));
        assert_eq!(get("bad"), None);
        assert_eq!(get("odd").as_deref(), Some("%zz%4"));
        assert_eq!(parameter(None, "a"), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in "\\PC{0,40}") {
            let encoded = encode(&text);
            prop_assert!(encoded.is_ascii() && !encoded.contains(['&', '=', '/', '?', '+']));
            prop_assert_eq!(decode(&encoded), Some(text.clone()));
            let _ = decode(&text);
        }
    }
}
