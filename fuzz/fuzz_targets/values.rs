//! Parses texts: quantities, formats, patterns, names, and the types of the CEL library.
#![no_main]

use gantry_quantity as quantity;
use gantry_cel::{Cidr, Ip, Quantity, Semver, Url};
use gantry_schema::format::Format;
use gantry_schema::names;
use gantry_schema::pattern::Pattern;
use libfuzzer_sys::fuzz_target;

const FORMATS: [&str; 22] = [
    "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3",
    "uuid4", "uuid5", "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor",
    "byte", "date", "datetime",
];

fuzz_target!(|text: &str| {
    if let Ok(once) = quantity::canonical(text) {
        let twice = quantity::canonical(&once).expect("it was read before");
        assert_eq!(twice, once, "{text:?}");
    }
    let _ = quantity::canonical_milli(text);
    for name in FORMATS.iter().chain(&["date-time", "duration", "password", "int32", "quantity"]) {
        if let Some(format) = Format::from_name(name) {
            let _ = format.matches(text);
        }
    }
    if let Ok(pattern) = Pattern::new(text) {
        let _ = pattern.matches(text);
    }
    let _ = names::dns1123_subdomain(text);
    let _ = names::dns1123_label(text);
    let _ = names::dns1035_label(text);
    let _ = names::qualified_name(text);
    let _ = names::label_value(text);
    let _ = names::path_segment(text);
    let _ = (Quantity::parse(text), Semver::parse(text), Url::parse(text));
    let _ = (Ip::parse(text), Cidr::parse(text));
});
