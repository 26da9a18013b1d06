//! Reads JSON: what is accepted is JSON, and reading the written value again gives the same value.
#![no_main]

use gantry_schema::{go_json_error, read_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let go_error = go_json_error(data);
    match read_json(data) {
        Ok((value, _)) => {
            serde_json::from_slice::<serde_json::Value>(data).expect("what is read is JSON");
            let (again, none) = read_json(value.to_string().as_bytes()).expect("it is JSON");
            assert_eq!((again, none.len()), (value, 0));
            assert_eq!(go_error, None, "JSON has no error");
        }
        Err(error) => {
            let _ = error.to_string();
        }
    }
});
