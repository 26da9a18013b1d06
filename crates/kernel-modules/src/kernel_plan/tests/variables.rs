//! The variables of kernels, as builds get them.

use std::collections::BTreeMap;

use gantry_kmod::KernelRelease;
use serde_json::json;

use crate::test_support::{planned, spec};

/// The kernel, X.Y.Z, the words of its distributions, and the value of its label if it differs.
///
/// Words are version, release and architecture of RHEL, release and flavor of Debian, and release
/// and flavor of Ubuntu.
type Vector = (
    &'static str,
    &'static str,
    Option<[&'static str; 3]>,
    Option<[&'static str; 2]>,
    Option<[&'static str; 2]>,
    Option<&'static str>,
);

/// The table of the specification.
const VECTORS: [Vector; 19] = [
    (
        "4.18.0-348.23.1.el8_5.x86_64",
        "4.18.0",
        Some(["el8_5", "348.23.1.el8_5", "x86_64"]),
        None,
        None,
        None,
    ),
    ("3.10.0-1160.el7.x86_64", "3.10.0", Some(["el7", "1160.el7", "x86_64"]), None, None, None),
    (
        "4.18.0-305.rt7.72.el8.x86_64",
        "4.18.0",
        Some(["el8", "305.rt7.72.el8", "x86_64"]),
        None,
        None,
        None,
    ),
    (
        "5.14.0-427.13.1.el9_4.x86_64+rt",
        "5.14.0",
        Some(["el9_4", "427.13.1.el9_4", "x86_64"]),
        None,
        None,
        Some("5.14.0-427.13.1.el9_4.x86_64_rt"),
    ),
    (
        "5.15.0-101.103.2.1.el8uek.x86_64",
        "5.15.0",
        Some(["el8uek", "101.103.2.1.el8uek", "x86_64"]),
        None,
        None,
        None,
    ),
    ("5.10.0-13-amd64", "5.10.0", None, Some(["13", "amd64"]), Some(["13", "amd64"]), None),
    ("6.1.0-0.deb11.13-amd64", "6.1.0", None, Some(["0.deb11.13", "amd64"]), None, None),
    ("5.10.0-13-686-pae", "5.10.0", None, Some(["13", "686-pae"]), None, None),
    (
        "6.1.0-13-cloud-amd64",
        "6.1.0",
        None,
        Some(["13", "cloud-amd64"]),
        Some(["13", "cloud-amd64"]),
        None,
    ),
    (
        "6.12.100+deb13-amd64",
        "6.12.100",
        None,
        Some(["deb13", "amd64"]),
        None,
        Some("6.12.100_deb13-amd64"),
    ),
    ("5.4.0-104-generic", "5.4.0", None, Some(["104", "generic"]), Some(["104", "generic"]), None),
    ("5.15.0-1031-aws", "5.15.0", None, Some(["1031", "aws"]), Some(["1031", "aws"]), None),
    (
        "6.8.0-1009-nvidia-64k",
        "6.8.0",
        None,
        Some(["1009", "nvidia-64k"]),
        Some(["1009", "nvidia-64k"]),
        None,
    ),
    ("5.16.11-200.fc35.x86_64", "5.16.11", None, None, None, None),
    ("5.4.196-108.356.amzn2.x86_64", "5.4.196", None, None, None, None),
    ("5.10.133+", "5.10.133", None, None, None, Some("5.10.133")),
    ("6.12-amd64", "6.12.0", None, None, None, None),
    ("5.15.167.4-microsoft-standard-WSL2", "5.15.167", None, None, None, None),
    ("4.18", "4.18.0", None, None, None, None),
];

/// The arguments that a build has without any of its own.
fn expected_arguments((kernel, xyz, rhel, debian, ubuntu, _): &Vector) -> BTreeMap<String, String> {
    let parts: Vec<&str> = xyz.split('.').collect();
    let names = ["KERNEL_X", "KERNEL_Y", "KERNEL_Z"];
    let mut all: Vec<(&str, &str)> = names.into_iter().zip(parts).collect();
    all.extend([("KERNEL_FULL_VERSION", *kernel), ("KERNEL_VERSION", *kernel)]);
    all.extend([("KERNEL_XYZ", *xyz), ("MOD_NAME", "hello"), ("MOD_NAMESPACE", "drivers")]);
    all.push(("CONTAINER_IMAGE", "quay.io/a/b:1"));
    let names = ["KERNEL_RHEL_VERSION", "KERNEL_RHEL_RELEASE", "KERNEL_RHEL_ARCH"];
    all.extend(rhel.iter().flat_map(|words| names.into_iter().zip(*words)));
    if let (Some(_), Some((_, variant))) = (rhel, kernel.split_once('+')) {
        all.push(("KERNEL_RHEL_VARIANT", variant));
    }
    let names = ["KERNEL_DEBIAN_RELEASE", "KERNEL_DEBIAN_FLAVOR"];
    all.extend(debian.iter().flat_map(|words| names.into_iter().zip(*words)));
    let names = ["KERNEL_UBUNTU_RELEASE", "KERNEL_UBUNTU_FLAVOR"];
    all.extend(ubuntu.iter().flat_map(|words| names.into_iter().zip(*words)));
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn kms_6_builds_get_the_variables_of_every_kernel() {
    let spec = spec(json!({
        "selector": {},
        "driverContainer": {"container": {
            "kernelMappings": [{"regexp": "."}], "containerImage": "quay.io/a/b:1",
            "build": {"dockerfile": "FROM a"},
        }},
    }));
    for vector in &VECTORS {
        let (kernel, .., label) = vector;
        let arguments = planned(&spec, kernel).build.unwrap().arguments;
        let names: Vec<&String> = arguments.iter().map(|(name, _)| name).collect();
        assert!(names.is_sorted(), "{kernel}: {names:?}");
        let found: BTreeMap<String, String> = arguments.into_iter().collect();
        assert_eq!(found, expected_arguments(vector), "{kernel}");
        let release: KernelRelease = kernel.parse().unwrap();
        assert_eq!(release.label_safe(), label.unwrap_or(kernel), "{kernel}");
    }
    for invalid in ["test", "4", ""] {
        assert!(invalid.parse::<KernelRelease>().is_err(), "{invalid}");
    }
}
