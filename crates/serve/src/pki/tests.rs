use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Barrier;

use super::*;
use crate::files::tests::private_folder;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

const START: &str = "2026-11-15T12:00:00Z";

fn open(dir: &Path, now: &str) -> Result<Pki, PkiError> {
    Pki::open_or_create(dir, &["host.example".to_owned()], at(now))
}

fn facts(identity: &Identity) -> ParsedCertificate {
    peer::parse_certificate(&tls::certificates(&identity.certificate).unwrap()[0]).unwrap()
}

/// Everything a client or the server could notice.
fn pem_snapshot(pki: &Pki) -> [String; 4] {
    [
        pki.ca_certificate().to_owned(),
        pki.server().certificate.clone(),
        pki.admin().certificate.clone(),
        pki.signing_key().to_owned(),
    ]
}

#[test]
fn a_new_directory_gets_all_certificates_and_keeps_them() {
    let folder = private_folder();
    let dir = folder.path().join("pki");
    let pki = open(&dir, START).unwrap();
    let names = subject_alt_names(&facts(pki.server())).unwrap();
    let expected = [
        "10.96.0.1",
        "127.0.0.1",
        "::1",
        "host.example",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    assert_eq!(names, expected.map(str::to_owned).into());
    let admin = tls::certificates(&pki.admin().certificate).unwrap();
    let subject = peer::verified_subject(&admin[0]).unwrap().unwrap();
    assert_eq!(
        (&*subject.common_name, &*subject.organizations),
        (ADMIN, &[MASTERS.to_owned()][..])
    );
    let authority = facts(&pki.authority.identity);
    assert_eq!(authority.not_after, at("2036-11-12T12:00:00Z"), "ten years of 365 days");
    assert_eq!(facts(pki.admin()).not_after, at("2027-11-15T12:00:00Z"));
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{:?}", entry.file_name());
    }

    let again = open(&dir, "2027-02-01T00:00:00Z").unwrap();
    assert_eq!(pem_snapshot(&again), pem_snapshot(&pki), "certificates survive a restart");
    assert_eq!(again.renew_at(), pki.renew_at());
    assert!(!format!("{pki:?} {:?}", pki.admin()).contains("PRIVATE"), "no key is ever printed");
}

#[test]
fn certificates_are_renewed_at_two_thirds_of_their_life() {
    let folder = private_folder();
    let pki = open(folder.path(), START).unwrap();
    // An hour before the start plus two thirds of a year and an hour.
    let due = at("2027-07-16T19:40:00Z");
    assert_eq!(pki.renew_at(), due);
    let before = open(folder.path(), "2027-07-16T19:39:59Z").unwrap();
    assert_eq!(pem_snapshot(&before), pem_snapshot(&pki));
    let after = Pki::open_or_create(folder.path(), &["host.example".to_owned()], due).unwrap();
    assert_ne!(after.server(), pki.server());
    assert_ne!(after.admin(), pki.admin());
    assert_eq!(after.ca_certificate(), pki.ca_certificate());
    assert_eq!(after.signing_key(), pki.signing_key());
    assert!(after.renew_at() > due);

    // Renewal of the authority: certificates signed before are valid under the new one, and the
    // reverse.
    let late = open(folder.path(), "2034-01-01T00:00:00Z").unwrap();
    assert_ne!(late.ca_certificate(), pki.ca_certificate());
    assert_eq!(late.authority.identity.key, pki.authority.identity.key);
    let now = at("2034-01-01T00:00:00Z");
    let admin = tls::certificates(&late.admin().certificate).unwrap();
    for authority in [pki.ca_certificate(), late.ca_certificate()] {
        assert!(ClientAuthority::new(authority).unwrap().verifies(&admin, now));
        let server = tls::certificates(&late.server().certificate).unwrap();
        assert!(is_server_certificate_of(authority, &server[0], now));
    }
}

#[test]
fn leaf_certificates_are_recreated_and_a_lost_ca_key_is_an_error() {
    let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let authority = "cannot use the certificate authority in ";
    let signing = "cannot use the service-account key in ";
    let table = [
        // why                        file            content        error
        ("a lost server", SERVER_FILE, None, None),
        ("a broken server", SERVER_FILE, Some(broken), None),
        ("an empty admin", ADMIN_FILE, Some(""), None),
        ("a lost authority", AUTHORITY_FILE, None, None),
        ("a broken authority", AUTHORITY_FILE, Some(broken), Some(authority)),
        ("an empty authority", AUTHORITY_FILE, Some(""), Some(authority)),
        ("a lost key for tokens", SIGNING_FILE, None, None),
        ("a broken key for tokens", SIGNING_FILE, Some(broken), Some(signing)),
    ];
    for (why, file, content, expected) in table {
        let folder = private_folder();
        let first = open(folder.path(), START).unwrap();
        let path = folder.path().join(file);
        match content {
            None => fs::remove_file(&path).unwrap(),
            Some(content) => files::write_private(&path, content.as_bytes()).unwrap(),
        }
        match (open(folder.path(), START), expected) {
            (Ok(second), None) => {
                assert_ne!(pem_snapshot(&second), pem_snapshot(&first), "{why}");
                let third = open(folder.path(), START).unwrap();
                assert_eq!(pem_snapshot(&third), pem_snapshot(&second), "{why}: and then it stays");
                let admin = tls::certificates(&third.admin().certificate).unwrap();
                let clients = ClientAuthority::new(third.ca_certificate()).unwrap();
                assert!(clients.verifies(&admin, at(START)), "{why}: all of one authority");
            }
            (Err(error), Some(start)) => {
                let (error, path) = (error.to_string(), path.display().to_string());
                assert!(error.starts_with(&format!("{start}{path}: ")), "{why}: {error}");
                assert!(error.contains("delete it to make a new one"), "{why}: {error}");
                assert_eq!(fs::read(&path).unwrap(), content.unwrap().as_bytes(), "{why}");
            }
            (outcome, _) => panic!("{why}: {outcome:?}"),
        }
    }
}

#[test]
fn a_ca_with_another_key_or_not_yet_valid_is_refused() {
    let (one, two) = (private_folder(), private_folder());
    let (ours, theirs) = (open(one.path(), START).unwrap(), open(two.path(), START).unwrap());
    let mixed = Identity {
        certificate: ours.authority.identity.certificate.clone(),
        key: theirs.authority.identity.key.clone(),
    };
    files::write_private(&one.path().join(AUTHORITY_FILE), to_pem(&mixed).as_bytes()).unwrap();
    let error = open(one.path(), START).unwrap_err().to_string();
    assert!(error.contains("certificate and key do not belong together"), "{error}");

    let error = open(two.path(), "2026-11-15T10:59:59Z").unwrap_err().to_string();
    assert!(error.contains("it is not valid before 2026-11-15T11:00:00Z"), "{error}");
    assert!(error.contains("the clock says 2026-11-15T10:59:59Z; set the clock"), "{error}");

    // A leaf of another authority in place of the authority.
    let leaf = to_pem(theirs.admin());
    files::write_private(&two.path().join(AUTHORITY_FILE), leaf.as_bytes()).unwrap();
    let error = open(two.path(), START).unwrap_err().to_string();
    assert!(error.contains("it was created by another program"), "{error}");
}

#[test]
fn files_readable_by_others_are_refused_not_replaced() {
    for file in [AUTHORITY_FILE, SERVER_FILE, ADMIN_FILE, SIGNING_FILE] {
        let folder = private_folder();
        let first = open(folder.path(), START).unwrap();
        let path = folder.path().join(file);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = open(folder.path(), START).unwrap_err().to_string();
        assert!(error.contains(&format!("run `chmod 600 {}`", path.display())), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(pem_snapshot(&open(folder.path(), START).unwrap()), pem_snapshot(&first));
    }
    let folder = private_folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = open(folder.path(), START).unwrap_err().to_string();
    assert!(error.contains("run `chmod 700"), "{error}");
}

#[test]
fn other_names_make_another_server_certificate_only() {
    let folder = private_folder();
    let first = open(folder.path(), START).unwrap();
    let names = ["HOST.example".to_owned(), "192.0.2.7".to_owned(), "fe80::1".to_owned()];
    let second = Pki::open_or_create(folder.path(), &names, at(START)).unwrap();
    assert_ne!(second.server(), first.server());
    assert_eq!(second.admin(), first.admin());
    let have = subject_alt_names(&facts(second.server())).unwrap();
    for name in ["host.example", "192.0.2.7", "fe80::1", "localhost"] {
        assert!(have.contains(name), "{name} in {have:?}");
    }
    let error = Pki::open_or_create(folder.path(), &["a b".to_owned()], at(START)).unwrap_err();
    let expected = "cannot put \"a b\" in a certificate: write a DNS name or an IP address";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn issued_certificates_name_the_user_and_all_groups() {
    let folder = private_folder();
    let pki = open(folder.path(), START).unwrap();
    let clients = ClientAuthority::new(pki.ca_certificate()).unwrap();
    let hour = Duration::from_secs(3600);
    let groups = ["b", "a", "system:authenticated", "b", "ü"];
    for count in 0..=groups.len() {
        let issued = pki.issue("alice", &groups[..count], hour, at(START)).unwrap();
        let chain = tls::certificates(&issued.certificate).unwrap();
        let subject = peer::verified_subject(&chain[0]).unwrap().unwrap();
        assert_eq!(subject.common_name, "alice");
        assert_eq!(subject.organizations, groups[..count], "in their order");
        assert!(tls::certified_key(&issued).is_ok(), "the key is its key");
        for (now, valid) in [
            ("2026-11-15T10:59:59Z", false),
            (START, true),
            ("2026-11-15T13:00:00Z", true),
            ("2026-11-15T13:00:01Z", false),
        ] {
            assert_eq!(clients.verifies(&chain, at(now)), valid, "{now}");
        }
        assert!(
            !is_server_certificate_of(pki.ca_certificate(), &chain[0], at(START)),
            "not for servers"
        );
    }
    let error = pki.issue("", &["a"], hour, at(START)).unwrap_err();
    assert_eq!(error.to_string(), "cannot issue a client certificate without a common name");
    let server = tls::certificates(&pki.server().certificate).unwrap();
    assert!(!clients.verifies(&server, at(START)), "nor a server's for clients");
}

#[test]
fn concurrent_opens_find_the_same_certificates() {
    let folder = private_folder();
    let start = Barrier::new(8);
    let all: Vec<_> = std::thread::scope(|scope| {
        let opened: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    pem_snapshot(&open(folder.path(), START).unwrap())
                })
            })
            .collect();
        opened.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|seen| *seen == all[0]));
}
