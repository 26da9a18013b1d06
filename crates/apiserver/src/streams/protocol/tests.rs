use http::HeaderValue;

use super::*;

#[test]
fn the_best_protocol_is_chosen() {
    let (v5, v4, v1) = ("v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io");
    let both = "v4.channel.k8s.io, v5.channel.k8s.io";
    let table = [
        (vec![v5], Some((Protocol::V5, Some(v5)))),
        (vec![both], Some((Protocol::V5, Some(v5)))),
        (vec!["x", v4], Some((Protocol::V4, Some(v4)))),
        (vec![v1], Some((Protocol::V1, Some(v1)))),
        (vec![], Some((Protocol::V1, None))),
        (vec!["v9.channel.k8s.io"], None),
        (vec!["v4.base64.channel.k8s.io"], None),
    ];
    for (offered, expected) in table {
        let headers: HeaderMap = offered
            .iter()
            .map(|it| (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(it).unwrap()))
            .collect();
        assert_eq!(Protocol::choose(&headers), expected, "{offered:?}");
    }
}

#[test]
fn exit_statuses_have_kubernetes_messages() {
    let exec = || Action::Exec(vec!["sh".to_owned(), "-c".to_owned(), "exit 3".to_owned()]);
    let words = || "it is so".to_owned();
    let internal = |words: &str| {
        json!({
            "metadata": {}, "status": "Failure",
            "message": format!("Internal error occurred: {words}"), "reason": "InternalError",
            "details": { "causes": [{ "message": words }] }, "code": 500,
        })
        .to_string()
    };
    let exit = |words: &str| {
        json!({
            "metadata": {}, "status": "Failure",
            "message": format!("command terminated with non-zero exit code: {words}"),
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": "3" }] },
        })
        .to_string()
    };
    let success = || r#"{"metadata":{},"status":"Success"}"#.to_owned();
    let doing = "error executing command in container: it is so";
    let plain = "command terminated with non-zero exit code: error executing command [sh -c exit \
                 3], exit code 3";
    let table = [
        (Protocol::V5, exec(), Ok(ExitCode(0)), Some(success())),
        (Protocol::V4, exec(), Ok(ExitCode(0)), Some(success())),
        (Protocol::V1, exec(), Ok(ExitCode(0)), None),
        (Protocol::V5, exec(), Ok(ExitCode(3)), Some(exit("command terminated with exit code 3"))),
        (
            Protocol::V4,
            exec(),
            Ok(ExitCode(3)),
            Some(exit("error executing command [sh -c exit 3], exit code 3")),
        ),
        (Protocol::V1, exec(), Ok(ExitCode(3)), Some(plain.to_owned())),
        (Protocol::V5, Action::Attach, Ok(ExitCode(3)), Some(success())),
        (
            Protocol::V5,
            exec(),
            Err(KubeletError::NotFound(words())),
            Some(internal("unable to upgrade connection: it is so")),
        ),
        (
            Protocol::V5,
            exec(),
            Err(KubeletError::Failed(words())),
            Some(internal(&format!("Internal error occurred: {doing}"))),
        ),
        (Protocol::V4, exec(), Err(KubeletError::Failed(words())), Some(internal(doing))),
        (
            Protocol::V4,
            Action::Attach,
            Err(KubeletError::Failed(words())),
            Some(internal("error attaching to container: it is so")),
        ),
        (
            Protocol::V5,
            exec(),
            Err(KubeletError::Unreachable(words())),
            Some(internal("error sending request: it is so")),
        ),
    ];
    for (protocol, action, end, expected) in table {
        let sent = protocol.outcome(&action, end.clone());
        let sent = sent.map(|it| String::from_utf8(it.to_vec()).unwrap());
        assert_eq!(sent, expected, "{protocol:?} {action:?} {end:?}");
    }
}

/// Returns what the parts of one message contain together.
fn decode_all(
    protocol: Protocol,
    parts: &[&'static [u8]],
) -> Result<Vec<ClientMessage>, Violation> {
    let mut channels = ChannelDecoder::new(protocol);
    let mut all = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let (first, last) = (place == 0, place + 1 == parts.len());
        all.extend(channels.decode(Bytes::from_static(part), first, last)?);
    }
    Ok(all)
}

#[test]
fn channels_are_decoded() {
    let input = |text: &'static [u8]| ClientMessage::Input(Bytes::from_static(text));
    let resized = ClientMessage::Resized(TerminalSize { width: 80, height: 24 });
    let table: [(&str, &[&'static [u8]], _); 16] = [
        ("input", &[b"\0abc"], Ok(vec![input(b"abc")])),
        ("input in parts", &[b"\0a", b"", b"\x04c"], Ok(vec![input(b"a"), input(b"\x04c")])),
        ("the first byte alone", &[b"", b"\0", b"a"], Ok(vec![input(b"a")])),
        ("nothing", &[b""], Ok(vec![])),
        ("no input", &[b"\0"], Ok(vec![])),
        ("what we say ourselves", &[b"\x01abc"], Ok(vec![])),
        ("nobody's", &[b"\x09abc"], Ok(vec![])),
        ("a size", &[b"\x04{\"Width\":80,\"Height\":24}\n"], Ok(vec![resized.clone()])),
        ("a size in parts", &[b"\x04{\"Width\":80", b",\"Height\":24}"], Ok(vec![resized])),
        ("half a size", &[b"\x04{\"Width\":80}"], Ok(vec![])),
        ("too large a size", &[b"\x04{\"Width\":80,\"Height\":99999}"], Ok(vec![])),
        ("too long a size", &[b"\x04", &[b' '; 300], b"{\"Width\":8,\"Height\":2}"], Ok(vec![])),
        ("the end of the input", &[b"\xff", b"\0"], Ok(vec![ClientMessage::InputClosed])),
        ("the end of another", &[b"\xff\x01"], Ok(vec![])),
        ("the end of nothing", &[b"\xff"], Err(Violation)),
        ("the end of nobody's", &[b"\xff\x05"], Err(Violation)),
    ];
    for (why, parts, expected) in table {
        assert_eq!(decode_all(Protocol::V5, parts), expected, "{why}");
    }
    assert_eq!(decode_all(Protocol::V4, &[b"\xff\0"]), Ok(vec![]), "not known to older clients");
}
