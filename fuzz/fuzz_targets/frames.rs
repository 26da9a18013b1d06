//! Frames of a WebSocket's client: answers do not depend on how they arrive.
#![no_main]

use bytes::BytesMut;
use gantry_apiserver::frames::answers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut whole = BytesMut::from(data);
    let at_once = answers(&mut whole);
    let (mut input, mut said) = (BytesMut::new(), Some(Vec::new()));
    for byte in data {
        input.extend_from_slice(&[*byte]);
        let Some(answer) = answers(&mut input) else {
            said = None;
            break;
        };
        if let Some(said) = &mut said {
            said.extend_from_slice(&answer);
        }
    }
    assert_eq!(at_once.map(|it| it.to_vec()), said);
});
