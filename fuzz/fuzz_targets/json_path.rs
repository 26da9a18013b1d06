//! Parses JSON paths of printer columns: any text is read or refused, and what is read can be
//! evaluated.
#![no_main]

use arbitrary::Unstructured;
use gantry_fuzz::{or_skip, tree};
use gantry_kinds::print::CustomColumns;
use gantry_kinds::print::json_path::JsonPath;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|data: (&str, &[u8])| {
    let (path, rest) = data;
    let mut u = Unstructured::new(rest);
    let object = or_skip!(tree::free(&mut u));
    if let Ok(path) = JsonPath::parse(path) {
        let _ = path.first(&object);
        let list = json!([object, object]);
        let _ = path.first(&json!({ "spec": object, "a": list, "items": list }));
    }
    for kind in ["string", "integer", "number", "boolean", "date", "other"] {
        let column = json!([{ "name": "A", "type": kind, "jsonPath": path }]);
        let _ = gantry_kinds::print::check_columns(&column, "spec.additionalPrinterColumns");
        let columns = CustomColumns::compile(&column).unwrap_or_else(|broken| broken.usable);
        let row = columns.row(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(row.cells.len(), columns.columns().len());
    }
});
