//! Actuation while its controllers are killed.

use gantry_process::clock::Clock;
use gantry_testkit::actuation_drill;

/// AS-66 under kills: a short form of `make drill-actuation`. The seed is printed if it fails.
#[tokio::test(flavor = "multi_thread")]
async fn as_66_no_two_engines_are_awake_while_controllers_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let plan = actuation_drill::Plan {
        program: env!("CARGO_BIN_EXE_gantry").into(),
        folder: folder.path().join("drill"),
        size: actuation_drill::Size::small(),
        seed,
    };
    let print = Box::new(|line: &str| println!("{line}"));
    match Box::pin(plan.run(&Clock::system(), print)).await {
        Ok(report) => {
            println!("{report}");
            assert!(report.kills == 5 && report.began > 0 && report.scaled_up > 3, "{report}");
        }
        Err(failure) => panic!("{failure}"),
    }
}
