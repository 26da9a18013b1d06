//! Facts of distributions.

use gantry_provision::{CgroupDriver, CgroupVersion, Facts, FactsError, Family, Firewall, Sudo};

pub(crate) const DEBIAN: &str = include_str!("../facts/debian-12.txt");
pub(crate) const UBUNTU: &str = include_str!("../facts/ubuntu-24.04.txt");
pub(crate) const ROCKY: &str = include_str!("../facts/rocky-9.txt");

#[test]
fn pvs_3_facts_of_debian() {
    let facts = Facts::parse(DEBIAN).unwrap();
    assert_eq!(facts.distribution.family, Family::Debian);
    assert_eq!((facts.distribution.id.as_str(), facts.architecture.as_str()), ("debian", "amd64"));
    assert_eq!(facts.kernel, "6.1.0-25-amd64");
    assert_eq!(facts.cgroup.version, CgroupVersion::V2);
    assert!(facts.cgroup.missing().is_empty());
    assert_eq!(facts.cgroup.driver(&facts.init), CgroupDriver::Systemd);
    assert_eq!((facts.systemd, facts.cpus), (Some(252), 128));
    assert_eq!((facts.memory_kib, facts.swap_kib), (1_056_763_120, 999));
    assert_eq!(facts.free_kib["/var"], 900_000_000);
    let network = &facts.network;
    assert_eq!(network.default_interface.as_deref(), Some("eth0"));
    assert_eq!(network.mtu, Some(9000));
    let addresses: Vec<&str> = network.addresses.iter().map(|it| it.address.as_str()).collect();
    assert_eq!(addresses, ["10.20.0.11/24", "fe80::1/64"]);
    let sshd = network.listener(22).unwrap();
    assert_eq!((sshd.process.as_deref(), sshd.pid), (Some("sshd"), Some(700)));
    assert_eq!(network.firewall, Firewall::None);
    assert_eq!(facts.accelerators, ["10de"]);
    assert!(!facts.restricts_oom_score() && facts.has_apparmor);
    assert_eq!((facts.sudo, facts.is_synchronized), (Sudo::Nopasswd, Some(true)));
}

#[test]
fn pvs_3_facts_of_ubuntu() {
    let facts = Facts::parse(UBUNTU).unwrap();
    assert_eq!(facts.distribution.family, Family::Debian);
    assert_eq!(facts.distribution.codename, "noble");
    assert_eq!(facts.containerd.map(|it| it.to_string()).as_deref(), Some("2.0.1"));
    assert_eq!((facts.sudo, facts.network.firewall), (Sudo::Password, Firewall::Ufw));
}

#[test]
fn pvs_3_facts_of_the_red_hat_family() {
    let facts = Facts::parse(ROCKY).unwrap();
    assert_eq!(facts.distribution.family, Family::Redhat);
    assert_eq!(facts.architecture, "arm64");
    assert_eq!(facts.cgroup.version, CgroupVersion::V1);
    assert!(facts.cgroup.missing().is_empty(), "{:?}", facts.cgroup);
    assert!(!facts.cgroup.controllers.contains("hugetlb"), "it is disabled");
    // The hierarchy of systemd is read-only.
    assert_eq!(facts.cgroup.driver(&facts.init), CgroupDriver::Cgroupfs);
    assert!(facts.is_selinux_enforcing && facts.restricts_oom_score());
    assert_eq!(facts.network.firewall, Firewall::Firewalld);
}

#[test]
fn prv_1_other_kernels_are_refused_by_name() {
    let darwin = DEBIAN.replacen("Linux\n", "Darwin\n", 1);
    let error = Facts::parse(&darwin).unwrap_err();
    assert_eq!(error, FactsError::Kernel("Darwin".to_owned()));
    assert!(error.to_string().contains("it runs Darwin"), "{error}");
    let mips = DEBIAN.replacen("x86_64", "mips", 1);
    assert_eq!(Facts::parse(&mips).unwrap_err(), FactsError::Architecture("mips".to_owned()));
}

#[test]
fn pvs_3_a_connection_that_ends_early_gives_no_facts() {
    for section in ["@@ meminfo", "@@ end"] {
        let cut = &DEBIAN[..DEBIAN.find(section).unwrap()];
        assert!(matches!(Facts::parse(cut), Err(FactsError::Truncated(_))), "{section}");
    }
    assert!(matches!(Facts::parse(""), Err(FactsError::Truncated(_))));
}

#[test]
fn prv_62_facts_are_written_and_read() {
    for text in [DEBIAN, UBUNTU, ROCKY] {
        let facts = Facts::parse(text).unwrap();
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<Facts>(&json).unwrap(), facts);
        for name in Facts::NAMES {
            assert!(facts.named(name).is_some(), "{name}");
        }
    }
}
