use proptest::prelude::*;

use super::*;

fn release(text: &str) -> KernelRelease {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A row: the release, XYZ, the parts of RHEL, Debian and Ubuntu, and the value of a label.
type Row = (
    &'static str,
    &'static str,
    Option<[&'static str; 3]>,
    Option<[&'static str; 2]>,
    Option<[&'static str; 2]>,
    Option<&'static str>,
);

#[rustfmt::skip]
const TABLE: [Row; 27] = [
    ("4.18.0-348.23.1.el8_5.x86_64", "4.18.0", Some(["el8_5", "348.23.1.el8_5", "x86_64"]), None, None, None),
    ("3.10.0-1160.el7.x86_64", "3.10.0", Some(["el7", "1160.el7", "x86_64"]), None, None, None),
    ("4.18.0-305.rt7.72.el8.x86_64", "4.18.0", Some(["el8", "305.rt7.72.el8", "x86_64"]), None, None, None),
    ("5.14.0-427.13.1.el9_4.x86_64+rt", "5.14.0", Some(["el9_4", "427.13.1.el9_4", "x86_64"]), None, None,
     Some("5.14.0-427.13.1.el9_4.x86_64_rt")),
    ("5.15.0-101.103.2.1.el8uek.x86_64", "5.15.0", Some(["el8uek", "101.103.2.1.el8uek", "x86_64"]), None, None, None),
    ("5.14.0-284.11.1.el9_2.x86_64", "5.14.0", Some(["el9_2", "284.11.1.el9_2", "x86_64"]), None, None, None),
    ("6.12.0-55.9.1.el10_0.aarch64+64k", "6.12.0", Some(["el10_0", "55.9.1.el10_0", "aarch64"]), None, None,
     Some("6.12.0-55.9.1.el10_0.aarch64_64k")),
    ("5.10.0-13-amd64", "5.10.0", None, Some(["13", "amd64"]), Some(["13", "amd64"]), None),
    ("6.1.0-0.deb11.13-amd64", "6.1.0", None, Some(["0.deb11.13", "amd64"]), None, None),
    ("5.10.0-13-686-pae", "5.10.0", None, Some(["13", "686-pae"]), None, None),
    ("6.1.0-13-cloud-amd64", "6.1.0", None, Some(["13", "cloud-amd64"]), Some(["13", "cloud-amd64"]), None),
    ("6.1.0-55-cloud-amd64", "6.1.0", None, Some(["55", "cloud-amd64"]), Some(["55", "cloud-amd64"]), None),
    ("6.12.100+deb13-amd64", "6.12.100", None, Some(["deb13", "amd64"]), None, Some("6.12.100_deb13-amd64")),
    ("6.12.111+deb12-cloud-amd64", "6.12.111", None, Some(["deb12", "cloud-amd64"]), None,
     Some("6.12.111_deb12-cloud-amd64")),
    ("6.16.3+deb13+1-cloud-arm64", "6.16.3", None, Some(["deb13+1", "cloud-arm64"]), None,
     Some("6.16.3_deb13_1-cloud-arm64")),
    ("5.4.0-104-generic", "5.4.0", None, Some(["104", "generic"]), Some(["104", "generic"]), None),
    ("5.15.0-1031-aws", "5.15.0", None, Some(["1031", "aws"]), Some(["1031", "aws"]), None),
    ("6.8.0-1009-nvidia-64k", "6.8.0", None, Some(["1009", "nvidia-64k"]), Some(["1009", "nvidia-64k"]), None),
    ("5.16.11-200.fc35.x86_64", "5.16.11", None, None, None, None),
    ("5.4.196-108.356.amzn2.x86_64", "5.4.196", None, None, None, None),
    ("5.10.133+", "5.10.133", None, None, None, Some("5.10.133")),
    ("6.6.72+", "6.6.72", None, None, None, Some("6.6.72")),
    ("6.12-amd64", "6.12.0", None, None, None, None),
    ("5.15.167.4-microsoft-standard-WSL2", "5.15.167", None, None, None, None),
    ("6.6.56-talos", "6.6.56", None, None, None, None),
    ("4.18", "4.18.0", None, None, None, None),
    ("4.18.x", "4.18.0", None, None, None, None),
];

#[test]
fn releases_of_distributions_are_taken_apart() {
    for (text, xyz, rhel, debian, ubuntu, label) in TABLE {
        let release = release(text);
        let variables = release.variables();
        let get = |name: &str| variables.get(name).map(String::as_str);
        assert_eq!(get("KERNEL_FULL_VERSION"), Some(text));
        assert_eq!(get("KERNEL_VERSION"), Some(text));
        assert_eq!(get("KERNEL_XYZ"), Some(xyz), "{text}");
        let numbers: Vec<&str> = xyz.split('.').collect();
        assert_eq!(get("KERNEL_X"), Some(numbers[0]), "{text}");
        assert_eq!(get("KERNEL_Y"), Some(numbers[1]), "{text}");
        assert_eq!(get("KERNEL_Z"), Some(numbers[2]), "{text}");
        let (major, minor, patch) = release.version();
        assert_eq!(format!("{major}.{minor}.{patch}"), xyz, "{text}");
        for (at, name) in ["VERSION", "RELEASE", "ARCH"].into_iter().enumerate() {
            let name = format!("KERNEL_RHEL_{name}");
            assert_eq!(get(&name), rhel.map(|parts| parts[at]), "{name} of {text}");
        }
        for (family, parts) in [("DEBIAN", debian), ("UBUNTU", ubuntu)] {
            for (at, name) in ["RELEASE", "FLAVOR"].into_iter().enumerate() {
                let name = format!("KERNEL_{family}_{name}");
                assert_eq!(get(&name), parts.map(|parts| parts[at]), "{name} of {text}");
            }
        }
        assert_eq!(release.label_safe(), label.unwrap_or(text), "{text}");
        assert!(variables.keys().all(|name| VARIABLES.contains(name)), "{text}");
    }
}

#[test]
fn the_variant_of_rhel_is_after_the_plus() {
    let real_time = release("5.14.0-427.13.1.el9_4.x86_64+rt");
    assert_eq!(real_time.variables()["KERNEL_RHEL_VARIANT"], "rt");
    let plain = release("5.14.0-427.13.1.el9_4.x86_64");
    assert!(!plain.variables().contains_key("KERNEL_RHEL_VARIANT"));
}

#[test]
fn what_is_no_release_is_refused() {
    let grammar = |text: &str| Err(InvalidKernelVersion::Grammar(text.to_owned()));
    let characters = |text: &str| Err(InvalidKernelVersion::Characters(text.to_owned()));
    let long = format!("6.1.0-{}", "a".repeat(59));
    let table = [
        ("no number", "test", grammar("test")),
        ("one number", "4", grammar("4")),
        ("nothing", "", grammar("")),
        ("no second number", "4.x", grammar("4.x")),
        ("a line end", "6.1.0\n", characters("6.1.0\n")),
        ("a number beyond 32 bits", "4294967296.1", grammar("4294967296.1")),
        ("other digits", "٤.١", grammar("٤.١")),
        ("a path", "6.1.0/../../etc", characters("6.1.0/../../etc")),
        ("a space", "6.1.0 x", characters("6.1.0 x")),
        ("a letter that is not ASCII", "6.1.0-ä", characters("6.1.0-ä")),
        ("65 characters", &long, Err(InvalidKernelVersion::Length(65))),
    ];
    for (why, text, expected) in table {
        assert_eq!(text.parse::<KernelRelease>(), expected, "{why}");
    }
}

#[test]
fn derived_forms_are_safe() {
    let release = release("5.14.0-427.13.1.el9_4.x86_64+RT_");
    assert_eq!(release.tag_safe(), "5.14.0-427.13.1.el9_4.x86_64_RT_");
    assert_eq!(release.label_safe(), "5.14.0-427.13.1.el9_4.x86_64_RT");
    assert_eq!(release.dns_safe(), "5-14-0-427-13-1-el9-4-x86-64-rt");
    let long: KernelRelease = format!("6.1.0-{}-b", "a".repeat(56)).parse().unwrap();
    assert_eq!(long.label_safe(), format!("6.1.0-{}", "a".repeat(56)));
}

proptest! {
    #[test]
    fn no_text_panics(text in "[0-9.+a-z_/ -]{0,80}") {
        if let Ok(release) = text.parse::<KernelRelease>() {
            prop_assert_eq!(release.as_str(), &text);
            prop_assert!(release.label_safe().len() <= 63);
            prop_assert!(release.variables().len() >= 6);
        }
    }
}
