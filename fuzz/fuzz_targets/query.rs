//! Paths, query strings, continue tokens and durations.
#![no_main]

use gantry_apiserver::paging::{ListOptions, Resume};
use gantry_apiserver::query::{Query, WriteOptions, decode, duration_millis};
use gantry_apiserver::route::route;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let query = Query::read(Some(text));
    let _ = WriteOptions::read(&query, "PatchOptions").map_err(|refusal| refusal.document());
    for watch in [false, true] {
        let _ = ListOptions::read(&query, watch).map_err(|refusal| refusal.document());
    }
    let _ = duration_millis(text);
    let _ = route(&decode(text, false));
    // Every byte of a path survives being escaped.
    let escaped: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(decode(&escaped, true), text);
    if let Ok(resume) = Resume::read(text) {
        assert_eq!(Resume::read(&resume.token()).ok(), Some(resume));
    }
    // A key of the store, as a list may end with.
    let clean = !text.contains('\0') && text.split('/').all(|it| !matches!(it, "" | "." | ".."));
    if clean {
        let resume = Resume { revision: Some(7), after: text.to_owned() };
        assert_eq!(Resume::read(&resume.token()).ok(), Some(resume));
    }
});
