//! What the processes of a server take.

use std::fs;

/// Resident memory of all of them together, in megabytes. A process that has ended takes nothing.
pub(crate) fn resident_megabytes(pids: &[u32]) -> f64 {
    let kilobytes: u32 = pids
        .iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok())
        .filter_map(|status| resident_kilobytes(&status))
        .sum();
    f64::from(kilobytes) / 1000.0
}

fn resident_kilobytes(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_of_a_process() {
        assert_eq!(resident_kilobytes("Name:\tx\nVmRSS:\t   1234 kB\n"), Some(1234));
        assert_eq!(resident_kilobytes("Name:\tkthreadd\n"), None);
        assert!(resident_megabytes(&[std::process::id()]) > 0.5);
        assert_eq!(resident_megabytes(&[]), 0.0);
    }
}
