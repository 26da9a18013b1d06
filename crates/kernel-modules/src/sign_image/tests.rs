use std::collections::BTreeMap;

use gantry_kmod::{Certificate, KernelRelease, PrivateKey, SignerOptions, SyntheticModule};
use gantry_oci::build::ImageBuilder;
use gantry_oci::layer::NewEntry;
use gantry_oci::{BlobSink as _, BlobSource as _, Platform, blob};
use jiff::Timestamp;

use super::*;
use crate::verify_image;

const MODULE: &str = "/opt/lib/modules/6.1.0-55-cloud-amd64/hello.ko";

fn module() -> Vec<u8> {
    let release: KernelRelease = "6.1.0-55-cloud-amd64".parse().unwrap();
    SyntheticModule::new("hello", &release).to_bytes().unwrap()
}

/// An image with these files, and its blobs.
fn image(files: &[(&str, &[u8])]) -> (MemoryBlobs, Document) {
    let entries = files.iter().map(|(path, content)| NewEntry::file(path, content.to_vec(), 0o644));
    let mut blobs = MemoryBlobs::default();
    let manifest =
        ImageBuilder::from_scratch(Platform::linux("amd64").unwrap(), Timestamp::UNIX_EPOCH)
            .layer(entries.collect(), "test")
            .unwrap()
            .build(&mut blobs)
            .unwrap();
    (blobs, Document::Manifest(manifest))
}

fn signer() -> Signer {
    signer_of(
        include_bytes!("../../../kmod/tests/fixtures/keys/rsa2048.pkcs8.pem"),
        include_bytes!("../../../kmod/tests/fixtures/certificates/rsa2048.pem"),
    )
}

fn another_signer() -> Signer {
    signer_of(
        include_bytes!("../../../kmod/tests/fixtures/keys/rsa3072.pkcs8.pem"),
        include_bytes!("../../../kmod/tests/fixtures/certificates/rsa3072.pem"),
    )
}

fn signer_of(key: &[u8], certificate: &[u8]) -> Signer {
    let key = PrivateKey::parse(key, None).unwrap();
    let certificate = Certificate::parse(certificate).unwrap();
    Signer::new(key, certificate, SignerOptions::default()).unwrap()
}

fn options(patterns: &[&str]) -> SignImageOptions {
    SignImageOptions {
        patterns: patterns.iter().map(|it| it.parse().unwrap()).collect(),
        existing: ExistingSignatures::Append,
        created: Timestamp::UNIX_EPOCH,
        base_name: None,
        labels: BTreeMap::new(),
    }
}

/// The blobs of a signed image: the new ones and those it had.
fn all_blobs(old: &MemoryBlobs, signed: &SignedImage) -> MemoryBlobs {
    let mut all = old.clone();
    for (_, content) in signed.new_blobs.iter() {
        all.insert(content.to_vec());
    }
    all
}

#[test]
fn kms_57_signed_files_are_in_one_more_layer_and_verify() {
    let (blobs, document) = image(&[(MODULE, &module()), ("/etc/motd", b"hello")]);
    let signer = signer();
    let signed = sign_image(&blobs, &document, &signer, &options(&[MODULE])).unwrap();
    assert!(signed.is_changed());
    assert_eq!(signed.files.len(), 1);
    assert_eq!(
        (signed.files[0].path.as_str(), signed.files[0].result),
        (MODULE, FileResult::Signed)
    );
    let (Document::Manifest(old), Document::Manifest(new)) = (&document, &signed.document) else {
        panic!("images have manifests");
    };
    assert_eq!(new.layers()[..old.layers().len()], *old.layers());
    assert_eq!(new.layers().len(), old.layers().len() + 1);

    let all = all_blobs(&blobs, &signed);
    let trusted = [signer.certificate().clone()];
    let patterns = options(&[MODULE]).patterns;
    let verify = |document: &Document| {
        let weak = WeakDigests::Refuse;
        verify_image(&all, document, &patterns, &trusted, weak).unwrap().remove(0).signer
    };
    assert!(verify(&signed.document).is_ok());
    assert!(verify(&document).is_err(), "the old image is not signed");
}

#[test]
fn kms_55_a_signed_image_is_left_as_it_is() {
    let (blobs, document) = image(&[(MODULE, &module())]);
    let signer = signer();
    let signed = sign_image(&blobs, &document, &signer, &options(&[MODULE])).unwrap();
    let all = all_blobs(&blobs, &signed);
    let again = sign_image(&all, &signed.document, &signer, &options(&[MODULE])).unwrap();
    assert!(!again.is_changed());
    assert_eq!(again.files[0].result, FileResult::AlreadySigned);
    assert_eq!(again.document.bytes(), signed.document.bytes());
    let skips = SignImageOptions { existing: ExistingSignatures::Skip, ..options(&[MODULE]) };
    let by_another = sign_image(&all, &signed.document, &another_signer(), &skips).unwrap();
    assert_eq!(by_another.files[0].result, FileResult::Skipped);
}

#[test]
fn a_signed_image_has_the_labels_that_are_given() {
    let (blobs, document) = image(&[(MODULE, &module())]);
    let labels = BTreeMap::from([("input".to_owned(), "abc".to_owned())]);
    let labelled = SignImageOptions { labels, ..options(&[MODULE]) };
    let signed = sign_image(&blobs, &document, &signer(), &labelled).unwrap();
    let Document::Manifest(manifest) = &signed.document else { panic!("it was a manifest") };
    let all = all_blobs(&blobs, &signed);
    let config = blob::read_config(&all, manifest.config()).unwrap();
    assert_eq!(config.labels()["input"], "abc");
}

#[test]
fn kms_58_the_same_input_gives_the_same_digest() {
    let (blobs, document) = image(&[(MODULE, &module())]);
    let signer = signer();
    let sign = || sign_image(&blobs, &document, &signer, &options(&[MODULE])).unwrap();
    let (signed, again) = (sign(), sign());
    assert_eq!(signed.document.bytes(), again.document.bytes());
    assert_eq!(signed.new_blobs, again.new_blobs);
    let later = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1);
    let later = SignImageOptions { created: later, ..options(&[MODULE]) };
    let later = sign_image(&blobs, &document, &signer, &later).unwrap();
    assert_ne!(signed.document.bytes(), later.document.bytes(), "the time is in the history");

    let descriptor = signed.document.descriptor();
    let mut copy = Vec::new();
    signed.new_blobs.open(&descriptor).unwrap().read_to_end(&mut copy).unwrap();
    assert_eq!(copy, signed.document.bytes(), "the new manifest is among the new blobs");
    let all = all_blobs(&blobs, &signed);
    assert!(blob::list_blobs(&all, &descriptor).unwrap().iter().all(|it| all.contains(it)));
}

/// Each mistake has a variant of its own, because commands have an exit code for each.
#[test]
fn kms_57_mistakes_are_told_apart() {
    let (blobs, document) = image(&[(MODULE, &module()), ("/opt/notes.ko", b"no module")]);
    let signer = signer();
    let sign =
        |pattern: &str| sign_image(&blobs, &document, &signer, &options(&[pattern])).unwrap_err();
    let missing = sign("/opt/lib/modules/6.1.0-55-cloud-amd64/helo.ko");
    assert!(matches!(missing, SignImageError::Selection(_)), "{missing}");
    assert!(missing.to_string().contains("hello.ko"), "similar files are named: {missing}");
    let directory = sign("/opt/lib");
    assert!(matches!(directory, SignImageError::Selection(_)), "{directory}");
    let text = sign("/opt/notes.ko");
    assert!(matches!(text, SignImageError::Module { .. }), "{text}");
    let nothing = MemoryBlobs::default();
    let pulled = sign_image(&nothing, &document, &signer, &options(&[MODULE])).unwrap_err();
    assert!(matches!(pulled, SignImageError::Blob(_)), "{pulled}");
    // The configuration is there, and the layer is not.
    let Document::Manifest(manifest) = &document else { unreachable!("it has one platform") };
    let mut without_layer = MemoryBlobs::default();
    without_layer.insert(blobs.get(manifest.config().digest()).unwrap().to_vec());
    let broken = sign_image(&without_layer, &document, &signer, &options(&[MODULE])).unwrap_err();
    assert!(matches!(broken, SignImageError::Layer(_)), "{broken}");
    assert!(broken.to_string().contains("could not find the blob"), "{broken}");
}
