//! Paths, query strings, continue tokens and durations.
#![no_main]

use gantry_apiserver::response::pagination::{ContinueFrom, ListOptions};
use gantry_apiserver::request::query::{Query, WriteOptions, decode, duration_millis};
use gantry_apiserver::request::route::route;
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
    if let Ok(continue_from) = ContinueFrom::read(text) {
        assert_eq!(ContinueFrom::read(&continue_from.token()).ok(), Some(continue_from));
    }
    // A key of the store, as it occurs at the end of a page.
    let clean = !text.contains('\0') && text.split('/').all(|it| !matches!(it, "" | "." | ".."));
    if clean {
        let continue_from = ContinueFrom { revision: Some(7), after: text.to_owned() };
        assert_eq!(ContinueFrom::read(&continue_from.token()).ok(), Some(continue_from));
    }
});
