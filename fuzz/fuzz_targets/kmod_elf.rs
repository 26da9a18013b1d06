//! Reads ELF files as kernel modules: no panic, and a field that is listed can be asked for.
#![no_main]

use gantry_kmod::ModuleInfo;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(info) = ModuleInfo::parse(data) else { return };
    assert!(info.has_modinfo() || info.fields().next().is_none());
    for (name, value) in info.fields() {
        assert!(info.values(name).any(|found| found == value));
        assert!(info.field(name).is_some());
    }
    let _ = (info.kernel_release(), info.depends().count());
});
