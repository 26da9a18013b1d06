//! The modules that simulated kernels come with.

/// A module that is part of a simulated kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTreeModule {
    /// Its name, as its file has it.
    pub name: &'static str,
    /// Its file below `/lib/modules/RELEASE`.
    pub file: &'static str,
    /// The modules that it needs.
    pub depends: &'static [&'static str],
    /// What it is for.
    pub description: &'static str,
}

/// A few that out-of-tree modules often need.
const MODULES: [InTreeModule; 5] = [
    InTreeModule {
        name: "crc-itu-t",
        file: "kernel/lib/crc-itu-t.ko",
        depends: &[],
        description: "CRC ITU-T V.41 calculations",
    },
    InTreeModule {
        name: "crc32c_generic",
        file: "kernel/crypto/crc32c_generic.ko",
        depends: &[],
        description: "CRC32c (Castagnoli) calculations wrapper for lib/crc32c",
    },
    InTreeModule {
        name: "dummy",
        file: "kernel/drivers/net/dummy.ko",
        depends: &[],
        description: "Dummy netdevice driver which discards all packets sent to it",
    },
    InTreeModule {
        name: "libcrc32c",
        file: "kernel/lib/libcrc32c.ko",
        depends: &[],
        description: "CRC32c (Castagnoli) calculations",
    },
    InTreeModule {
        name: "mdev",
        file: "kernel/drivers/vfio/mdev/mdev.ko",
        depends: &[],
        description: "Mediated VFIO bus driver",
    },
];

/// Returns the modules that every simulated kernel comes with.
#[must_use]
pub fn in_tree_modules() -> &'static [InTreeModule] {
    &MODULES
}
