//! Label selectors: any text is read or refused, and what is read can be matched.
#![no_main]

use std::collections::BTreeMap;

use gantry_apiserver::request::selector::LabelSelector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(selector) = LabelSelector::read(text) else { return };
    let labels = |value: &str| BTreeMap::from([("a".to_owned(), value.to_owned())]);
    for labels in [BTreeMap::new(), labels("a"), labels("1"), labels("")] {
        let alone = selector.matches(&labels);
        assert!(!selector.is_empty() || alone, "{text:?}");
        // Every requirement must be met, so a selector that repeats all of them matches the same.
        if !text.trim().is_empty()
            && let Ok(twice) = LabelSelector::read(&format!("{text},{text}"))
        {
            assert_eq!(twice.matches(&labels), alone, "{text:?}");
        }
    }
});
