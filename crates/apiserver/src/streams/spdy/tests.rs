use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

use super::dictionary::dictionary;
use super::*;

/// Returns all frames in `bytes`, which arrive `at_once`; data frames are joined again.
fn decode(bytes: &[u8], at_once: usize) -> Result<Vec<Frame>, Violation> {
    let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
    let mut frames: Vec<Frame> = Vec::new();
    for some in bytes.chunks(at_once.max(1)) {
        input.extend_from_slice(some);
        while let Some(frame) = decoder.next(&mut input)? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// Returns the bytes of each stream in turn, and all other frames.
fn summary(frames: Vec<Frame>) -> Vec<Frame> {
    let mut joined: Vec<Frame> = Vec::new();
    for frame in frames {
        if let Frame::Data { stream, bytes, fin } = &frame
            && let Some(Frame::Data { stream: before, bytes: so_far, fin: false }) =
                joined.last_mut()
            && before == stream
        {
            let whole = Bytes::from([&so_far[..], bytes].concat());
            let (stream, fin) = (*stream, *fin);
            joined.pop();
            joined.push(Frame::Data { stream, bytes: whole, fin });
            continue;
        }
        joined.push(frame);
    }
    joined
}

fn headers() -> impl Strategy<Value = Headers> {
    prop::collection::vec(("[a-z-]{1,12}", "\\PC{0,20}"), 0..5).prop_map(Headers)
}

fn frame() -> impl Strategy<Value = Frame> {
    let stream = || 0..=MASK;
    prop_oneof![
        (stream(), headers(), any::<bool>()).prop_map(|(stream, headers, fin)| Frame::SynStream {
            stream,
            headers,
            fin
        }),
        (stream(), headers(), any::<bool>()).prop_map(|(stream, headers, fin)| Frame::SynReply {
            stream,
            headers,
            fin
        }),
        (stream(), headers(), any::<bool>()).prop_map(|(stream, headers, fin)| Frame::Headers {
            stream,
            headers,
            fin
        }),
        (stream(), any::<u32>()).prop_map(|(stream, status)| Frame::Reset { stream, status }),
        prop::option::of(0..=MASK).prop_map(|initial_window| Frame::Settings { initial_window }),
        any::<u32>().prop_map(Frame::Ping),
        (stream(), any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        (stream(), 0..=MASK).prop_map(|(stream, delta)| Frame::WindowUpdate { stream, delta }),
        (stream(), prop::collection::vec(any::<u8>(), 0..300), any::<bool>())
            .prop_map(|(stream, bytes, fin)| Frame::Data { stream, bytes: bytes.into(), fin }),
    ]
}

proptest! {
    /// Encoded frames are decoded again, however they are split.
    #[test]
    fn frames_survive_the_way(
        frames in prop::collection::vec(frame(), 0..8),
        at_once in 1_usize..50,
    ) {
        let mut encoder = Encoder::default();
        let bytes: Vec<u8> = frames.iter().flat_map(|it| encoder.encode(it)).collect();
        let expected = summary(frames);
        prop_assert_eq!(&summary(decode(&bytes, at_once).unwrap()), &expected);
        prop_assert_eq!(summary(decode(&bytes, bytes.len()).unwrap()), expected);
    }

    /// Random bytes are frames or a violation, the same however they are split.
    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (slow, fast) = (decode(&bytes, 1), decode(&bytes, bytes.len()));
        prop_assert_eq!(slow.map(summary), fast.map(summary));
    }

    /// The same holds for random bytes in place of compressed headers.
    #[test]
    fn random_headers_do_no_harm(block in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut body = vec![0; 10];
        body.extend(&block);
        let read = decode(&control(SYN_STREAM, &body), 1000);
        prop_assert!(read.is_err() || read.is_ok_and(|it| it.len() == 1));
    }
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    frame.put_u16(VERSION);
    frame.put_u16(kind);
    put_flags_and_length(&mut frame, false, body.len());
    frame.put_slice(body);
    frame.to_vec()
}

/// Compresses headers as client-go does: with the dictionary, all blocks in one stream.
struct Compressor(Compress);

impl Compressor {
    fn new() -> Self {
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(&dictionary()).unwrap();
        Self(compress)
    }

    fn syn_stream(&mut self, stream: u32, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 * 1024);
        self.0.compress_vec(plain, &mut out, FlushCompress::Sync).unwrap();
        let mut body = stream.to_be_bytes().to_vec();
        body.extend([0; 6]);
        body.extend(out);
        control(SYN_STREAM, &body)
    }
}

fn plain(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut plain = length(headers.len()).to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        plain.extend(length(text.len()).to_be_bytes());
        plain.extend(text.as_bytes());
    }
    plain
}

#[test]
fn headers_are_compressed_over_the_whole_connection() {
    let mut compressor = Compressor::new();
    let list = [("streamtype", "error"), ("port", "8080"), ("requestid", "0")];
    let first = compressor.syn_stream(1, &plain(&list));
    let second = compressor.syn_stream(3, &plain(&list));
    assert!(second.len() < first.len(), "the second block refers to the first");
    let frames = decode(&[first, second].concat(), 7).unwrap();
    let ports: Vec<_> = frames
        .iter()
        .map(|frame| match frame {
            Frame::SynStream { stream, headers, fin: false } => {
                (*stream, headers.text("Port"), headers.text("streamType"))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ports, [(1, "8080", "error"), (3, "8080", "error")]);
}

#[test]
fn oversized_and_malformed_frames_are_violations() {
    let mut bomb = Compressor::new();
    let bomb = bomb.syn_stream(1, &plain(&[("a", &"x".repeat(1 << 20))]));
    assert!(bomb.len() < 8 * 1024, "it is small on the wire");
    let mut cut = Compressor::new();
    let lies = cut.syn_stream(1, &[0, 0, 0, 9]);
    let mut other = control(PING, &[0; 4]);
    other[1] = 2;
    let table = [
        ("headers that are huge", bomb),
        ("fewer headers than were promised", lies),
        ("another version", other),
        ("a ping without a number", control(PING, &[0; 3])),
        ("settings that end early", control(SETTINGS, &[0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 1])),
        ("a stream without headers", control(SYN_STREAM, &[0; 9])),
        ("an endless frame", control(PING, &[0; 20_000])),
    ];
    for (why, bytes) in table {
        assert_eq!(decode(&bytes, bytes.len()), Err(Violation), "{why}");
    }
    let unknown = [control(99, b"??"), control(PING, &[0, 0, 0, 7])].concat();
    assert_eq!(decode(&unknown, 3), Ok(vec![Frame::Ping(7)]), "unknown frames are passed over");
}
