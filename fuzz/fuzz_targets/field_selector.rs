//! Field selectors: what is read means the same when it is written out again.
#![no_main]

use gantry_apiserver::selector::FieldSelector;
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
    assert_eq!(FieldSelector::read(&written).as_ref(), Ok(&selector), "{text:?} {written:?}");
});
