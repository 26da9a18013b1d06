use std::io::{Read, Write};

use proptest::prelude::*;

use super::*;

const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn digests_of_published_vectors() {
    assert_eq!(Digest::sha256(b"").as_str(), EMPTY);
    assert_eq!(
        Digest::sha256(b"abc").as_str(),
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert_eq!(
        Digest::compute(Algorithm::Sha512, b"abc").as_str(),
        "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
         2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
    );
}

#[test]
fn texts_that_are_no_digests_are_refused() {
    let upper = EMPTY.replace("e3b0", "E3B0");
    let table = [
        ("no colon", "e3b0", DigestError::NoAlgorithm),
        ("empty", "", DigestError::NoAlgorithm),
        ("no algorithm", ":e3b0", DigestError::UnknownAlgorithm),
        ("broken algorithm", "md5:e3b0", DigestError::UnknownAlgorithm),
        ("upper-case algorithm", "SHA256:e3b0", DigestError::UnknownAlgorithm),
        (
            "too short",
            "sha256:e3b0",
            DigestError::Length { algorithm: Algorithm::Sha256, expected: 64, actual: 4 },
        ),
        ("upper-case digits", &upper, DigestError::NotHexadecimal),
    ];
    for (why, text, expected) in table {
        assert_eq!(text.parse::<Digest>(), Err(expected), "{why}");
    }
    assert!(EMPTY.replace("sha256", "sha512").parse::<Digest>().is_err(), "length by algorithm");
    let wide = format!("sha256:{}", "é".repeat(32));
    assert_eq!(wide.parse::<Digest>(), Err(DigestError::NotHexadecimal), "not ASCII");
}

#[test]
fn a_digest_knows_its_parts() {
    let digest: Digest = EMPTY.parse().unwrap();
    assert_eq!(digest.algorithm(), Algorithm::Sha256);
    assert_eq!(digest.hex(), &EMPTY[7..]);
    assert_eq!(digest.short(), "e3b0c44298fc");
    assert_eq!(digest.to_string(), EMPTY);
}

fn read_all(content: &[u8], digest: Digest, size: u64) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut reader = VerifyingReader::new(content, digest, size);
    match reader.read_to_end(&mut out) {
        Ok(_) => Ok(out),
        Err(error) => {
            let again = reader.read(&mut [0; 8]).unwrap_err();
            assert_eq!(again.to_string(), error.to_string(), "an error stays");
            Err(error.to_string())
        }
    }
}

#[test]
fn wrong_content_is_refused_while_it_is_read() {
    let digest = Digest::sha256(b"content");
    assert_eq!(read_all(b"content", digest.clone(), 7).unwrap(), b"content");
    let short = digest.short();
    for (content, size, text) in [
        (&b"content"[..], 6, "is longer than its 6 bytes"),
        (b"content", 8, "ends after 7 of 8 bytes"),
        (b"contenT", 7, "has the digest sha256:"),
        (b"", 7, "ends after 0 of 7 bytes"),
    ] {
        let error = read_all(content, digest.clone(), size).unwrap_err();
        assert!(error.contains(text) && error.contains(short), "{error}");
    }
}

#[test]
fn the_verifier_stops_at_the_first_byte_too_many() {
    let mut verifier = Verifier::new(Digest::sha256(b"abc"), 3);
    assert_eq!(verifier.update(b"abc"), Ok(()));
    assert_eq!(
        verifier.update(b"d"),
        Err(VerifyError::TooLong { digest: Digest::sha256(b"abc"), size: 3 })
    );
}

#[test]
fn drain_checks_the_rest() {
    let mut reader = VerifyingReader::new(&b"abc"[..], Digest::sha256(b"abd"), 3);
    assert_eq!(reader.read(&mut [0; 2]).unwrap(), 2);
    assert!(reader.drain().is_err());
}

proptest! {
    #[test]
    fn pieces_give_the_digest_of_the_whole(content: Vec<u8>, cut in 0_usize..64) {
        let cut = cut.min(content.len());
        for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
            let mut hasher = Hasher::new(algorithm);
            hasher.write_all(&content[..cut]).unwrap();
            hasher.update(&content[cut..]);
            let digest = hasher.finish();
            prop_assert_eq!(&digest, &Digest::compute(algorithm, &content));
            prop_assert_eq!(&digest.to_string().parse::<Digest>().unwrap(), &digest);
        }
    }

    #[test]
    fn reading_a_digest_never_panics(text: String) {
        if let Ok(digest) = text.parse::<Digest>() {
            prop_assert_eq!(digest.as_str(), text);
        }
    }
}
