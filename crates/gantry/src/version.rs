//! Information about this build.

use serde::Serialize;

/// Information about a build, for bug reports.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The release.
    pub version: &'static str,
    /// The commit it was built from.
    pub commit: &'static str,
    /// The day of that commit. The day of the build is not recorded: builds are reproducible.
    pub commit_date: &'static str,
    /// The compiler.
    pub rustc: &'static str,
    /// The target platform.
    pub target: &'static str,
    /// `release` or `debug`.
    pub profile: &'static str,
    /// The Kubernetes release whose types and schemas are built in.
    pub kubernetes: &'static str,
}

/// The information about this build.
pub const VERSION: Version = Version {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("GANTRY_COMMIT"),
    commit_date: env!("GANTRY_COMMIT_DATE"),
    rustc: env!("GANTRY_RUSTC"),
    target: env!("GANTRY_TARGET"),
    profile: env!("GANTRY_PROFILE"),
    kubernetes: gantry_api::kubernetes::VERSION,
};
