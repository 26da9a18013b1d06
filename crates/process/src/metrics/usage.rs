//! Resource usage of the process, read from `/proc` at each scrape.

use std::{fmt, fs};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::{counter::ConstCounter, gauge::ConstGauge};

/// Kernel clock ticks a second as user space sees them: the same on every architecture we build
/// for, whatever the kernel's own rate.
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;

/// Collects from `/proc/self`. A file that cannot be read leaves its metrics out: a wrong zero
/// would be misleading.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let read = |path| fs::read_to_string(path).ok();
        if let Some(bytes) = read("/proc/self/status").as_deref().and_then(resident_bytes) {
            gauge(&mut page, "process_resident_memory_bytes", "Memory in use", bytes)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is the directory being read.
            let open = open.count().saturating_sub(1) as f64;
            gauge(&mut page, "process_open_fds", "Open file descriptors", open)?;
        }
        let Some(times) = read("/proc/self/stat").as_deref().and_then(times) else {
            return Ok(());
        };
        let spent = ConstCounter::new(times.spent);
        let help = "Processor time spent";
        let name = "process_cpu_seconds";
        spent.encode(page.encode_descriptor(name, help, None, spent.metric_type())?)?;
        if let Some(boot) = read("/proc/stat").as_deref().and_then(boot_time) {
            let start = boot + times.since_boot;
            gauge(&mut page, "process_start_time_seconds", "Start, in Unix time", start)?;
        }
        Ok(())
    }
}

fn gauge(page: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(page.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// The status file, not the statistics: those count in pages, whose size we would have to ask for.
fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

#[derive(Debug, PartialEq)]
struct ProcessTimes {
    /// Processor seconds, user and system.
    spent: f64,
    /// From boot to the start of the process, in seconds.
    since_boot: f64,
}

fn times(stat: &str) -> Option<ProcessTimes> {
    // The second field is the program's name in parentheses and may contain both of them.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Numbered as in proc(5), where the first field after the name is the third.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(ProcessTimes {
        spent: (field(14)? + field(15)?) / CLOCK_TICKS_PER_SECOND,
        since_boot: field(22)? / CLOCK_TICKS_PER_SECOND,
    })
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_in_bytes() {
        let table = [
            ("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\nRssAnon: 1 kB\n", Some(2_097_152.0)),
            ("VmPeak:\t 9 kB\n", None),
            ("VmRSS:\t 2048 MB\n", None),
            ("VmRSS:\t many kB\n", None),
        ];
        for (status, expected) in table {
            assert_eq!(resident_bytes(status), expected, "{status:?}");
        }
    }

    #[test]
    fn times_are_found_behind_any_name() {
        let tail = "S 1 2 3 0 -1 4194560 5 6 7 8 250 50 9 10 20 0 4 0 12345 1000 77";
        let expected = Some(ProcessTimes { spent: 3.0, since_boot: 123.45 });
        for name in ["gantry", "a) S 1 (b", "(((", ") ) )"] {
            assert_eq!(times(&format!("42 ({name}) {tail}")), expected, "{name}");
        }
        for broken in ["", "42 (gantry", "42 (gantry) S 1 2"] {
            assert_eq!(times(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn boot_time_is_one_line_of_many() {
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 5\n"), Some(1.7e9));
        assert_eq!(boot_time("cpu 1 2\n"), None);
    }
}
