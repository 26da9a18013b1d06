//! The programs of hosts: how they are called, and what their output means.

use std::collections::BTreeMap;

use crate::content::Digest;
use crate::facts::Family;
use crate::state::State;

/// How packages are listed, installed and purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageTool {
    /// Lists what is installed: lines of status, name and version.
    pub list: Vec<&'static str>,
    /// Says what an installation would install; names follow. Without one the tool cannot say.
    pub simulate: Option<Vec<&'static str>>,
    /// Installs; names follow.
    pub install: Vec<&'static str>,
    /// Purges; names follow. Fails if something else needs one of them.
    pub purge: Vec<&'static str>,
}

/// The tool of a family of distributions, with absolute paths: `/usr/sbin` is in no user's path.
#[must_use]
pub fn package_tool(family: Family) -> Option<PackageTool> {
    match family {
        Family::Debian => Some(PackageTool {
            list: vec![
                "/usr/bin/dpkg-query",
                "-W",
                "-f=${db:Status-Abbrev} ${Package} ${Version}\\n",
            ],
            simulate: Some(vec![
                "/usr/bin/apt-get",
                "install",
                "--simulate",
                "--no-install-recommends",
                "--",
            ]),
            install: vec![
                "/usr/bin/apt-get",
                "install",
                "--yes",
                "--no-install-recommends",
                "--option=DPkg::Lock::Timeout=60",
                "--option=Dpkg::Options::=--force-confold",
                "--",
            ],
            purge: vec!["/usr/bin/dpkg", "--purge", "--"],
        }),
        Family::Redhat => Some(PackageTool {
            list: vec!["/usr/bin/rpm", "-qa", "--qf", "ii %{NAME} %{VERSION}-%{RELEASE}\\n"],
            simulate: None,
            install: vec![
                "/usr/bin/dnf",
                "install",
                "-y",
                "--setopt=install_weak_deps=False",
                "--",
            ],
            purge: vec!["/usr/bin/rpm", "-e", "--"],
        }),
        Family::Suse | Family::Arch | Family::Other => None,
    }
}

/// Reads a list of installed packages: names and versions.
#[must_use]
pub fn installed(output: &str) -> BTreeMap<String, String> {
    let package = |line: &str| {
        let mut words = line.split_whitespace();
        let (status, name, version) = (words.next()?, words.next()?, words.next()?);
        (status == "ii").then(|| (name.to_owned(), version.to_owned()))
    };
    output.lines().filter_map(package).collect()
}

/// Reads what a simulated installation would install.
#[must_use]
pub fn newly_installed(output: &str) -> Vec<String> {
    let name =
        |line: &str| line.strip_prefix("Inst ")?.split_whitespace().next().map(str::to_owned);
    // An upgrade names the version that is there in brackets, and is not undone.
    let is_new = |line: &&str| line.split_whitespace().nth(2).is_none_or(|it| !it.starts_with('['));
    output.lines().filter(is_new).filter_map(name).collect()
}

/// Reads `systemctl show --property=LoadState,UnitFileState,ActiveState`.
#[must_use]
pub fn unit_state(output: &str, config: Option<Digest>) -> State {
    let value = |key: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default()
    };
    if value("LoadState") != "loaded" {
        return State::Absent;
    }
    State::Unit {
        enabled: matches!(value("UnitFileState"), "enabled" | "enabled-runtime" | "alias"),
        active: matches!(value("ActiveState"), "active" | "activating" | "reloading"),
        config,
    }
}

/// Reads `ctr images list`: references and digests.
#[must_use]
pub fn image_list(output: &str) -> BTreeMap<String, String> {
    let image = |line: &str| {
        let mut words = line.split_whitespace();
        let reference = words.next()?;
        let digest = words.find(|it| it.starts_with("sha256:"))?;
        Some((reference.to_owned(), digest.to_owned()))
    };
    output.lines().filter_map(image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_package_tools_is_read() {
        let output = "ii  curl 7.88.1-10+deb12u8\nrc  gone 1\nii  libc6 2.36\n";
        let found = installed(output);
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), ["curl", "libc6"]);
        let rpm = "ii conntrack-tools 1.4.7-2.el9\nii containerd.io 1.7.22-3.1.el9\n";
        assert_eq!(installed(rpm)["containerd.io"], "1.7.22-3.1.el9");
        let simulated = "NOTE: This is only a simulation!\nInst socat (1.7.4 Debian [amd64])\n\
                         Inst libc6 [2.35] (2.36 Debian [amd64])\nConf socat (1.7.4)\n";
        assert_eq!(newly_installed(simulated), ["socat"]);
    }

    #[test]
    fn argv_of_package_tools_is_golden() {
        let install = |family| package_tool(family).map(|it| it.install.join(" "));
        assert_eq!(
            install(Family::Debian).unwrap(),
            "/usr/bin/apt-get install --yes --no-install-recommends \
             --option=DPkg::Lock::Timeout=60 --option=Dpkg::Options::=--force-confold --"
        );
        assert_eq!(
            install(Family::Redhat).unwrap(),
            "/usr/bin/dnf install -y --setopt=install_weak_deps=False --"
        );
        assert_eq!(install(Family::Arch), None);
    }

    #[test]
    fn units_and_images_are_read() {
        let show = "LoadState=loaded\nUnitFileState=enabled\nActiveState=inactive\n";
        let state = State::Unit { enabled: true, active: false, config: None };
        assert_eq!(unit_state(show, None), state);
        assert_eq!(unit_state("LoadState=not-found\n", None), State::Absent);
        let list = "REF TYPE DIGEST SIZE\na/b:1 application/x sha256:00 1 MiB linux/amd64 -\n";
        assert_eq!(image_list(list), BTreeMap::from([("a/b:1".into(), "sha256:00".into())]));
    }
}
