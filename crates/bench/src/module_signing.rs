//! Compares the signing of kernel modules in images: `gantry modules sign`, and the kernel's
//! `sign-file` with umoci, which unpacks the image and packs it again.
//!
//! Both read an image from a directory in the OCI image layout and write one to such a directory,
//! with the same key, the same digest and the same modules of a real kernel, in turn. Both results
//! are read back, and every signed module must be the same. Beside it is the cost of the
//! controllers of Modules in a large cluster. Nothing here asserts a speed.

mod peak_memory;
mod report;
#[expect(dead_code, reason = "failures and many clients are for other measurements")]
mod sample;

#[path = "module_signing/image.rs"]
mod image;
#[path = "module_signing/reconcile.rs"]
mod reconcile;
#[path = "module_signing/tools.rs"]
mod tools;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Parser;
use gantry_process::clock::Clock;

use crate::image::{Base, Modules};
use crate::peak_memory::peak_megabytes;
use crate::reconcile::Size;
use crate::report::{Better, Figure};
use crate::sample::Samples;
use crate::tools::{Measurement, Tools};

/// Measure the signing of kernel modules in images, and the controllers of Modules.
#[derive(Debug, Parser)]
#[command(
    name = "bench-modules",
    after_help = "Runs:
  modules/N    N modules in an image that has nothing else
  base/N       N modules on top of a base image of 200 MB
  memory/MB    100 modules in an image with layers of so many megabytes, and peak memory
  control/N    the controllers with N nodes, 20 kernels and 50 Modules, without a server: until all
               are ready, and after the change of one node, which is compared with N/10 nodes

Examples:
  make bench-modules
  make bench-modules ARGS='--repeat 1 modules/10 memory/200'
  make bench-modules ARGS='control/1000'"
)]
struct Arguments {
    /// How often each run is repeated; the median is reported. Runs of memory are not repeated.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// The program gantry; the one beside this program if there is none.
    #[arg(long, value_name = "FILE")]
    gantry: Option<PathBuf>,

    /// The kernel's sign-file; that of Debian's package linux-kbuild if there is none.
    #[arg(long, value_name = "FILE")]
    sign_file: Option<PathBuf>,

    /// The folder with unpacked kernels, as testbed/kernels --print-dir prints it; for every run
    /// but control.
    #[arg(long, value_name = "DIR")]
    kernels: Option<PathBuf>,

    /// The folder for images; it needs five times the space of the largest one.
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// How many Modules there are in runs of control.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    modules: u32,

    /// Also write all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The runs.
    #[arg(default_values = ["modules/100", "base/100", "memory/2000", "control/1000"])]
    runs: Vec<Run>,
}

/// A run by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Modules(usize),
    Base(usize),
    Memory(usize),
    Control(usize),
}

/// The base image of [`Run::Base`], in megabytes.
const BASE_MEGABYTES: usize = 200;

/// How many modules the images of [`Run::Memory`] have.
const MODULES_IN_LARGE_IMAGES: usize = 100;

impl FromStr for Run {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let wrong = || anyhow!("no such run; use for instance modules/100, see --help");
        let (kind, count) = name.split_once('/').ok_or_else(wrong)?;
        let count = count.parse().map_err(|_| wrong())?;
        ensure!((1..=100_000).contains(&count), "a count must be from 1 to 100,000");
        match kind {
            "modules" => Ok(Self::Modules(count)),
            "base" => Ok(Self::Base(count)),
            "memory" => Ok(Self::Memory(count)),
            "control" => Ok(Self::Control(count)),
            _ => Err(wrong()),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut figures = Vec::new();
    for run in &arguments.runs {
        if let Run::Control(nodes) = run {
            figures.extend(
                control(*nodes, arguments.modules as usize).with_context(|| format!("{run:?}"))?,
            );
        }
    }
    let signing: Vec<Run> =
        arguments.runs.iter().copied().filter(|it| !matches!(it, Run::Control(_))).collect();
    if !signing.is_empty() {
        figures.extend(sign(&arguments, &signing).await?);
    }
    io::stdout().lock().write_all(report::table(&figures).as_bytes())?;
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_string_pretty(&figures)? + "\n")
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(())
}

/// The kernels of a large cluster.
const KERNELS: usize = 20;

/// Measures the controllers in a cluster, and in one with a tenth of its nodes.
fn control(nodes: usize, modules: usize) -> anyhow::Result<Vec<Figure>> {
    let clock = Clock::system();
    let mut figures = Vec::new();
    // The smaller one comes first: the peak of the memory is that of the whole program.
    for nodes in [(nodes / 10).max(1), nodes] {
        let size = Size { nodes, kernels: KERNELS.min(nodes), modules };
        let cost = reconcile::measure(size, &clock)?;
        let memory = peak_megabytes(std::process::id()).unwrap_or_default();
        let writes = number(cost.writes);
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        writeln!(io::stderr(), "{nodes} nodes: {cost:?}")?;
        for (what, value, unit) in [
            ("until all are ready", cost.rollout.as_secs_f64(), "s"),
            ("plans until then", number(cost.plans), ""),
            ("requests to the API until then", writes, ""),
            ("requests to registries until then", number(cost.questions), ""),
            ("memory, peak", memory, "MB"),
            ("count for metrics", milliseconds(cost.count), "ms"),
            ("the kernel of a node changes", milliseconds(cost.kernel_change), "ms"),
            ("a driver pod changes", milliseconds(cost.pod_change), "ms"),
        ] {
            figures.push(Figure {
                what: what.to_owned(),
                target: format!("{nodes} nodes"),
                setting: format!("{KERNELS} kernels, {modules} Modules"),
                value,
                unit,
                better: Better::Less,
                times: None,
                cpu_us: None,
            });
        }
    }
    Ok(figures)
}

/// Measures the signing of images.
async fn sign(arguments: &Arguments, runs: &[Run]) -> anyhow::Result<Vec<Figure>> {
    let kernels = arguments.kernels.as_deref().context("use --kernels for the modules to sign")?;
    let gantry = match &arguments.gantry {
        Some(path) => path.clone(),
        None => {
            let own = std::env::current_exe().context("could not find this program")?;
            own.with_file_name("gantry")
        }
    };
    let scratch = match &arguments.scratch {
        Some(path) => tempfile::tempdir_in(path),
        None => tempfile::tempdir(),
    };
    let scratch = scratch.context("could not make a folder for images")?;
    let sign_file = arguments.sign_file.as_deref();
    let tools = Tools::new(gantry, sign_file, scratch.path(), Clock::system())?;
    let mut bench = Bench { arguments, kernels, tools, figures: Vec::new() };
    for run in runs {
        bench.run(*run, scratch.path()).await.with_context(|| format!("{run:?}"))?;
    }
    Ok(bench.figures)
}

/// One invocation of this program.
struct Bench<'a> {
    arguments: &'a Arguments,
    kernels: &'a Path,
    tools: Tools,
    figures: Vec<Figure>,
}

impl Bench<'_> {
    async fn run(&mut self, run: Run, scratch: &Path) -> anyhow::Result<()> {
        let (count, base, repeat, setting) = match run {
            Run::Modules(count) => {
                (count, Base::None, self.arguments.repeat, format!("{count} modules"))
            }
            Run::Base(count) => {
                let setting = format!("{count} modules on {BASE_MEGABYTES} MB");
                (count, Base::Text(BASE_MEGABYTES), self.arguments.repeat, setting)
            }
            Run::Memory(megabytes) => {
                let setting = format!("{megabytes} MB of layers");
                (MODULES_IN_LARGE_IMAGES, Base::Random(megabytes), 1, setting)
            }
            Run::Control(_) => bail!("it signs nothing"),
        };
        let modules = Modules::of_kernels(self.kernels, count)?;
        let folder = scratch.join(setting.replace(' ', "-"));
        let unsigned = folder.join("unsigned");
        fs::create_dir_all(&folder)?;
        writeln!(io::stderr(), "{setting}: composing the image")?;
        image::compose(&unsigned, &modules, base)?;
        let mut theirs = Measurements::default();
        let mut ours = Measurements::default();
        for turn in 0..repeat {
            let place = folder.join(turn.to_string());
            fs::create_dir(&place)?;
            let (layout, result) = self.tools.with_umoci(&unsigned, &place, &modules).await?;
            writeln!(io::stderr(), "{setting}: sign-file and umoci: {result}")?;
            theirs.add(&result);
            let (own_layout, result) = self.tools.with_gantry(&unsigned, &place).await?;
            writeln!(io::stderr(), "{setting}: gantry: {result}")?;
            ours.add(&result);
            compare(&layout, &own_layout, &modules)?;
            fs::remove_dir_all(&place)?;
        }
        fs::remove_dir_all(&folder)?;
        self.figures.extend(theirs.figures("sign-file, umoci", &setting, count));
        self.figures.extend(ours.figures("gantry", &setting, count));
        Ok(())
    }
}

/// Checks that both ways give the same modules, and that they are signed.
fn compare(theirs: &Path, ours: &Path, modules: &Modules) -> anyhow::Result<()> {
    let (theirs, ours) = (image::signed(theirs, modules)?, image::signed(ours, modules)?);
    for (their, our) in theirs.iter().zip(&ours) {
        if their.path != our.path || their.content != our.content {
            bail!("{} and {} are not the same: the work differs", their.path, our.path);
        }
        let signed = our.content.ends_with(b"~Module signature appended~\n");
        ensure!(signed, "{} is not signed", our.path);
    }
    ensure!(theirs.len() == modules.len() && ours.len() == modules.len(), "modules are missing");
    Ok(())
}

/// The repeated measurements of one way.
#[derive(Debug, Default)]
struct Measurements {
    times: Vec<Duration>,
    peak_megabytes: f64,
}

impl Measurements {
    fn add(&mut self, measurement: &Measurement) {
        self.times.push(measurement.time);
        self.peak_megabytes = self.peak_megabytes.max(measurement.peak_megabytes);
    }

    fn figures(mut self, target: &str, setting: &str, modules: usize) -> [Figure; 3] {
        self.times.sort_unstable();
        let median = self.times.get(self.times.len() / 2).copied().unwrap_or_default();
        let mut samples = Samples::default();
        self.times.iter().for_each(|time| samples.add(*time));
        let figure = |what: &str, value, unit, better| Figure {
            what: what.to_owned(),
            target: target.to_owned(),
            setting: setting.to_owned(),
            value,
            unit,
            better,
            times: None,
            cpu_us: None,
        };
        let seconds = median.as_secs_f64();
        let rate = number(modules) / seconds.max(1e-9);
        let image = figure("sign an image", seconds, "s", Better::Less);
        [
            Figure { times: Some(samples.summary()), ..image },
            figure("modules", rate, "/s", Better::More),
            figure("memory, peak", self.peak_megabytes, "MB", Better::Less),
        ]
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of modules are far below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_as_they_are_written() {
        let table = [
            ("modules/100", Some(Run::Modules(100))),
            ("base/7", Some(Run::Base(7))),
            ("memory/2000", Some(Run::Memory(2000))),
            ("control/1000", Some(Run::Control(1000))),
            ("modules", None),
            ("modules/0", None),
            ("modules/x", None),
            ("images/3", None),
            ("", None),
        ];
        for (name, expected) in table {
            assert_eq!(name.parse::<Run>().ok(), expected, "{name}");
        }
    }

    #[test]
    fn the_median_and_the_highest_peak_are_reported() {
        let mut measurements = Measurements::default();
        for (seconds, peak_megabytes) in [(9, 10.0), (1, 30.0), (2, 20.0)] {
            measurements.add(&Measurement { time: Duration::from_secs(seconds), peak_megabytes });
        }
        let [time, rate, memory] = measurements.figures("a", "b", 100);
        assert_eq!((time.value, rate.value, memory.value), (2.0, 50.0, 30.0));
        assert_eq!(time.times.map(|times| times.max_ms), Some(9000.0));
    }
}
