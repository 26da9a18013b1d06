//! Files of credentials, manifests, and names of repositories.
#![no_main]

use gantry_registry::{CredentialFile, ManifestContent, RepositoryName};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = CredentialFile::parse(bytes) {
        let repository = "quay.io:443/team/app".parse().expect("it is a repository");
        let _ = file.find(&repository);
    }
    let read = ManifestContent::parse(bytes, None);
    // The type that was found is accepted when it is stated.
    if let Ok(content) = &read {
        let stated = content.media_type.as_str().to_owned();
        assert_eq!(ManifestContent::parse(bytes, Some(&stated)), read);
    }
    if let Ok(name) = str::from_utf8(bytes).unwrap_or_default().parse::<RepositoryName>() {
        assert!(name.as_str().split('/').all(|part| !matches!(part, "" | "." | "..")));
    }
});
