//! Field selectors: what is read means the same when it is written out again.
#![no_main]

use gantry_apiserver::request::selector::FieldSelector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(selector) = FieldSelector::read(text) else { return };
    let _ = selector.only_name();
    let _ = selector.matches(|field| field.to_owned().into());
    let escaped = |value: &str| {
        value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
    };
    let terms = selector.0.iter().map(|term| {
        let sign = if term.equal { "=" } else { "!=" };
        format!("{}{sign}{}", term.field, escaped(&term.value))
    });
    let written = terms.collect::<Vec<_>>().join(",");
    // Terms are in the order of their text, which another spelling may change.
    let ordered = |mut selector: FieldSelector| {
        selector.0.sort_by(|a, b| {
            (&a.field, &a.value, a.equal).cmp(&(&b.field, &b.value, b.equal))
        });
        selector
    };
    let again = FieldSelector::read(&written).map(ordered);
    assert_eq!(again, Ok(ordered(selector)), "{text:?} {written:?}");
});
