use proptest::prelude::*;

use super::*;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn parsed(text: &str) -> Result<String, ReferenceProblem> {
    text.parse::<Reference>()
        .map(|reference| {
            let tag = reference.tag().map_or("-", Tag::as_str);
            let digest = reference.digest().map_or("-", Digest::short);
            let (registry, path) = (reference.registry(), reference.repository().path());
            format!("{registry} {path} {tag} {digest}")
        })
        .map_err(|error| error.problem)
}

#[test]
fn references_are_read_as_docker_reads_them() {
    let digest = format!("nginx@sha256:{HEX}");
    let both = format!("quay.io/a/b:v1@sha256:{HEX}");
    let table = [
        ("a short name is of Docker Hub", "nginx", "docker.io library/nginx - -"),
        ("with a tag", "nginx:1.27", "docker.io library/nginx 1.27 -"),
        ("with a digest", &*digest, "docker.io library/nginx - e3b0c44298fc"),
        ("with both", &*both, "quay.io a/b v1 e3b0c44298fc"),
        ("a user of Docker Hub", "team/app", "docker.io team/app - -"),
        ("a long name of Docker Hub", "docker.io/nginx", "docker.io library/nginx - -"),
        ("the old name", "index.docker.io/team/app:x", "docker.io team/app x -"),
        ("the server's name", "registry-1.docker.io/library/nginx", "docker.io library/nginx - -"),
        ("a port needs a slash", "localhost:5000", "docker.io library/localhost 5000 -"),
        ("localhost is a host", "localhost/a", "localhost a - -"),
        ("with a port", "localhost:5000/a/b/c:t", "localhost:5000 a/b/c t -"),
        ("a dot makes a host", "a.b/c", "a.b c - -"),
        ("upper case makes a host", "Registry/app", "Registry app - -"),
        ("an address", "127.0.0.1:5000/a", "127.0.0.1:5000 a - -"),
        ("IPv6", "[::1]/a:t", "[::1] a t -"),
        ("IPv6 with a port", "[2001:db8::1]:5000/a", "[2001:db8::1]:5000 a - -"),
        ("separators", "a.b/c.d_e__f---g", "a.b c.d_e__f---g - -"),
        ("a name that looks like a host", "docker.io", "docker.io library/docker.io - -"),
        ("tags have dots, hyphens, capitals", "a/b:_V1.2-RC", "docker.io a/b _V1.2-RC -"),
        ("a short hexadecimal name", &HEX[1..], &*format!("docker.io library/{} - -", &HEX[1..])),
    ];
    for (why, text, expected) in table {
        assert_eq!(parsed(text).as_deref(), Ok(expected), "{why}: {text}");
    }
}

#[test]
fn malformed_references_are_refused_with_the_reason() {
    let long_path = "a/".repeat(127) + "bc";
    let long_tag = format!("a:{}", "t".repeat(129));
    let long = "a".repeat(1000);
    let table = [
        ("", ReferenceProblem::Empty),
        (&*long, ReferenceProblem::TooLong),
        (HEX, ReferenceProblem::ImageId),
        (&*long_path, ReferenceProblem::PathTooLong),
        (&*long_tag, ReferenceProblem::Tag),
        ("a:", ReferenceProblem::Tag),
        ("a:.t", ReferenceProblem::Tag),
        ("a:-t", ReferenceProblem::Tag),
        ("a:t t", ReferenceProblem::Tag),
        ("a:é", ReferenceProblem::Tag),
        ("Nginx", ReferenceProblem::UpperCase),
        ("quay.io/Team/app", ReferenceProblem::UpperCase),
        ("quay.io/", ReferenceProblem::Path),
        ("/a", ReferenceProblem::Path),
        ("a//b", ReferenceProblem::Path),
        ("quay.io//b", ReferenceProblem::Path),
        ("a/", ReferenceProblem::Path),
        ("a..b", ReferenceProblem::Path),
        ("a___b", ReferenceProblem::Path),
        ("a._b", ReferenceProblem::Path),
        ("-a", ReferenceProblem::Path),
        ("a-", ReferenceProblem::Path),
        ("a b", ReferenceProblem::Path),
        ("../a", ReferenceProblem::Registry),
        ("quay.io/../a", ReferenceProblem::Path),
        ("-a.b/c", ReferenceProblem::Registry),
        ("a_b.c/d", ReferenceProblem::Registry),
        ("a..b/c", ReferenceProblem::Registry),
        ("a:0/c", ReferenceProblem::Registry),
        ("a:65536/c", ReferenceProblem::Registry),
        ("a:/c", ReferenceProblem::Registry),
        ("a:b/c", ReferenceProblem::Registry),
        ("[::1/c", ReferenceProblem::Registry),
        ("[::g]:5/c", ReferenceProblem::Registry),
        ("[fe80::1%eth0]:5/c", ReferenceProblem::Registry),
        ("a@sha256:12", {
            let algorithm = crate::Algorithm::Sha256;
            ReferenceProblem::Digest(DigestError::Length { algorithm, expected: 64, actual: 2 })
        }),
        ("a@md5:12", ReferenceProblem::Digest(DigestError::UnknownAlgorithm)),
        ("a@", ReferenceProblem::Digest(DigestError::NoAlgorithm)),
    ];
    for (text, expected) in table {
        assert_eq!(parsed(text), Err(expected), "{text:?}");
    }
}

#[test]
fn the_longest_parts_fit() {
    let path = "a/".repeat(127) + "b";
    assert_eq!(path.len(), MAX_PATH_LENGTH);
    let text = format!("{}.io:65535/{path}:{}", "h".repeat(250), "t".repeat(128));
    let text = format!("{text}@sha512:{}", "0".repeat(128));
    assert_eq!(text.len(), MAX_REFERENCE_LENGTH);
    assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
    // `library/` counts.
    let short = "a".repeat(248);
    assert_eq!(parsed(&short), Err(ReferenceProblem::PathTooLong));
}

#[test]
fn kms_60_repositories_of_one_registry_are_recognised() {
    let table = [
        ("quay.io/a", "quay.io/b", true),
        ("Quay.io/a", "quay.io/b", true),
        ("quay.io/a", "quay.io:443/b", false),
        ("localhost:1/a", "localhost:2/a", false),
        ("nginx", "index.docker.io/team/app", true),
        ("nginx", "quay.io/library/nginx", false),
    ];
    for (left, right, expected) in table {
        let [one, other] = [left, right].map(|text| text.parse::<Repository>().unwrap());
        assert_eq!(one.same_registry(&other), expected, "{left} {right}");
    }
}

#[test]
fn registries_know_their_server() {
    let table = [
        ("nginx", "registry-1.docker.io", "docker.io", None),
        ("quay.io/a", "quay.io", "quay.io", None),
        ("[::1]:5000/a", "[::1]:5000", "[::1]", Some(5000)),
        ("[::1]/a", "[::1]", "[::1]", None),
        ("localhost:80/a", "localhost:80", "localhost", Some(80)),
    ];
    for (text, server, host, port) in table {
        let reference: Reference = text.parse().unwrap();
        let registry = reference.registry();
        assert_eq!((registry.server(), registry.host(), registry.port()), (server, host, port));
        assert_eq!(registry.as_str().parse::<Registry>().as_ref(), Ok(registry));
    }
}

#[test]
fn the_digest_names_the_manifest_before_the_tag() {
    let name = |text: &str| text.parse::<Reference>().unwrap().manifest_name().to_owned();
    assert_eq!(name("a"), "latest");
    assert_eq!(name("a:t"), "t");
    assert_eq!(name(&format!("a:t@sha256:{HEX}")), format!("sha256:{HEX}"));
    let tagged: Reference = "quay.io/a:t".parse().unwrap();
    let digest = Digest::sha256(b"");
    assert_eq!(tagged.at_digest(digest).to_string(), format!("quay.io/a@sha256:{HEX}"));
    assert_eq!(tagged.with_tag("u".parse().unwrap()).to_string(), "quay.io/a:u");
}

#[test]
fn a_repository_has_neither_tag_nor_digest() {
    let error = "a:t".parse::<Repository>().unwrap_err();
    assert_eq!(error.problem, ReferenceProblem::NotOnlyRepository);
    assert_eq!(
        error.to_string(),
        "cannot use \"a:t\" as an image reference: a repository has neither tag nor digest"
    );
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(
        host in "([a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?\\.){1,3}[a-z]{2,4}(:[1-9][0-9]{0,3})?",
        path in "[a-z0-9]{1,5}((\\.|_|__|-{1,3})[a-z0-9]{1,4}){0,3}(/[a-z0-9]{1,5}){0,3}",
        tag in proptest::option::of("[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}"),
        digest in proptest::option::of("[0-9a-f]{64}"),
    ) {
        let mut text = format!("{host}/{path}");
        if let Some(tag) = &tag {
            text += &format!(":{tag}");
        }
        if let Some(digest) = &digest {
            text += &format!("@sha256:{digest}");
        }
        let reference: Reference = text.parse().unwrap();
        prop_assert_eq!(reference.to_string(), text);
        prop_assert_eq!(reference.repository().path(), path);
        prop_assert_eq!(reference.registry().as_str(), host);
    }

    #[test]
    fn any_text_is_refused_or_reads_back(text in "[a-zA-Z0-9:/@.\\[\\]_-]{0,40}|.{0,30}") {
        if let Ok(reference) = text.parse::<Reference>() {
            let printed = reference.to_string();
            prop_assert_eq!(printed.parse::<Reference>(), Ok(reference));
        }
    }
}
