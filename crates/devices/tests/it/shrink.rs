//! Shrinks problems, and shows them as text.

use std::fmt::Write as _;
use std::sync::Arc;

use gantry_api::devices::Sharing;
use gantry_devices::problem::{
    Alternative, Count, Device, Draws, PoolDevices, Symbol, ValueSymbol, Verdict,
};

use crate::generate::ProblemCase;

/// Returns true, for changes that remove something.
fn removed<T>(_: T) -> bool {
    true
}

/// Returns every problem that is this one with one thing less.
pub(crate) fn smaller(case: &ProblemCase) -> Vec<ProblemCase> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut ProblemCase) -> bool| {
        let mut less = case.clone();
        if change(&mut less) {
            all.push(less);
        }
    };
    for pool in 0..case.pools.len() {
        with(&|c| c.pools.len() > 1 && removed(c.pools.remove(pool)));
        with(&|c| c.pools[pool].invalid_reason.take().is_some());
        match &case.pools[pool].devices {
            PoolDevices::Counted(_) => with(&|c| match &mut c.pools[pool].devices {
                PoolDevices::Counted(counted) if counted.held > 0 => {
                    counted.held -= 1;
                    true
                }
                PoolDevices::Counted(counted) if counted.count > 0 => {
                    counted.count -= 1;
                    true
                }
                PoolDevices::Counted(_) | PoolDevices::Listed(_) => false,
            }),
            PoolDevices::Listed(devices) => {
                for at in 0..devices.len() {
                    let device =
                        |c: &mut ProblemCase, change: &dyn Fn(&mut Vec<Device>) -> bool| {
                            match &mut c.pools[pool].devices {
                                PoolDevices::Listed(devices) => change(devices),
                                PoolDevices::Counted(_) => false,
                            }
                        };
                    with(&|c| device(c, &|d| removed(d.remove(at))));
                    with(&|c| device(c, &|d| d[at].taints.pop().is_some()));
                    with(&|c| device(c, &|d| d[at].charges.pop().is_some()));
                    with(&|c| device(c, &|d| d[at].access.take().is_some()));
                    with(&|c| {
                        device(c, &|d| {
                            let held = std::mem::take(&mut d[at].holds) > 0;
                            let sharing = &mut d[at].sharing;
                            sharing.read_only_shared = 0;
                            sharing.read_write_shared = 0;
                            sharing.write_exclusive = 0;
                            sharing.read_write_exclusive = 0;
                            held
                        })
                    });
                    for entry in 0..devices[at].capacities.len() {
                        with(&|c| device(c, &|d| removed(d[at].capacities.remove(entry))));
                        with(&|c| {
                            device(c, &|d| std::mem::take(&mut d[at].capacities[entry].used) != 0)
                        });
                    }
                }
            }
        }
    }
    with(&|c| c.request.topologies.pop().is_some());
    for claim in 0..case.request.claims.len() {
        with(&|c| removed(c.request.claims.remove(claim)));
        with(&|c| c.request.claims[claim].topologies.pop().is_some());
        with(&|c| c.request.claims[claim].match_attributes.pop().is_some());
        with(&|c| c.request.claims[claim].distinct_attributes.pop().is_some());
        for term in 0..case.request.claims[claim].terms.len() {
            with(&|c| removed(c.request.claims[claim].terms.remove(term)));
            let ways = case.request.claims[claim].terms[term].alternatives.len();
            for way in 0..ways {
                let ask = |c: &mut ProblemCase, change: &dyn Fn(&mut Alternative) -> bool| {
                    change(&mut c.request.claims[claim].terms[term].alternatives[way])
                };
                with(&|c| {
                    let ways = &mut c.request.claims[claim].terms[term].alternatives;
                    ways.len() > 1 && removed(ways.remove(way))
                });
                with(&|c| ask(c, &|a| a.topologies.pop().is_some()));
                with(&|c| ask(c, &|a| a.match_attributes.pop().is_some()));
                with(&|c| ask(c, &|a| a.distinct_attributes.pop().is_some()));
                with(&|c| ask(c, &|a| a.tolerations.pop().is_some()));
                with(&|c| ask(c, &|a| a.mode.take().is_some()));
                with(&|c| ask(c, &|a| std::mem::take(&mut a.admin)));
                with(&|c| {
                    ask(c, &|a| match &mut a.draws {
                        Draws::Each(list) => list.pop().is_some(),
                        Draws::Together(list) => list.pop().is_some(),
                    })
                });
                with(&|c| {
                    ask(c, &|a| match &mut a.count {
                        Count::Between { least, most } if *most > *least => {
                            *most = *least;
                            true
                        }
                        Count::Between { least, most } if *least > 1 => {
                            *least -= 1;
                            *most -= 1;
                            true
                        }
                        Count::Between { .. } | Count::All => false,
                    })
                });
            }
        }
    }
    all
}

/// Returns the smallest reachable problem for which `fails` still holds.
pub(crate) fn shrink(mut case: ProblemCase, fails: impl Fn(&ProblemCase) -> bool) -> ProblemCase {
    while let Some(less) = smaller(&case).into_iter().find(&fails) {
        case = less;
    }
    case
}

/// Formats the problem for readers.
pub(crate) fn show(case: &ProblemCase) -> String {
    let name = |symbol: Symbol| case.symbols.name(symbol).to_owned();
    let amount = |nanos: i128| format!("{}", nanos / 1_000_000).parse::<f64>().unwrap() / 1000.0;
    let attributes = |of: &[(Symbol, ValueSymbol)]| {
        let shown: Vec<String> = of.iter().map(|(n, v)| format!("{}={v:?}", name(*n))).collect();
        shown.join(" ")
    };
    let mut text = String::new();
    for pool in &case.pools {
        let shared: Vec<String> = pool
            .resources
            .iter()
            .map(|r| format!("{} {}-{}", name(r.name), amount(r.capacity), amount(r.used)))
            .collect();
        writeln!(text, "{} {shared:?} fault {:?}", pool.name, pool.invalid_reason).unwrap();
        match &pool.devices {
            PoolDevices::Counted(counted) => {
                let (count, held) = (counted.count, counted.held);
                let row = counted.signature.0;
                let attributes = attributes(&counted.attributes);
                writeln!(text, "  {count} devices, {held} held, column {row}, {attributes}")
                    .unwrap();
            }
            PoolDevices::Listed(devices) => {
                for device in devices {
                    let entries: Vec<String> = device
                        .capacities
                        .iter()
                        .map(|e| {
                            let places: Vec<String> =
                                e.domains.iter().map(|place| name(place.name)).collect();
                            let (capacity, used) = (amount(e.capacity), amount(e.used));
                            let size = amount(e.granularity.size());
                            let splits = if e.splits { "" } else { " whole" };
                            format!("{} {capacity}-{used}/{size} {places:?}{splits}", name(e.name))
                        })
                        .collect();
                    let charges: Vec<_> =
                        device.charges.iter().map(|c| (c.resource, amount(c.amount))).collect();
                    writeln!(
                        text,
                        "  {} column {} {} entries {entries:?} charges {charges:?} access {:?} {} holds {} taints {:?}",
                        device.name,
                        device.signature.0,
                        attributes(&device.attributes),
                        device.access.map(name),
                        sharing(&device.sharing),
                        device.holds,
                        device.taints,
                    )
                    .unwrap();
                }
            }
        }
    }
    let met = |row: &Arc<[Verdict]>| -> String {
        row.iter().map(|v| if *v == Verdict::Met { '+' } else { '-' }).collect()
    };
    let rows: Vec<String> = case.request.verdicts.iter().map(met).collect();
    writeln!(text, "{:?} selectors {rows:?} {:?}", case.request.policy, case.request.topologies)
        .unwrap();
    for claim in &case.request.claims {
        writeln!(
            text,
            "{} match {:?} distinct {:?} {:?}",
            claim.name, claim.match_attributes, claim.distinct_attributes, claim.topologies
        )
        .unwrap();
        for term in &claim.terms {
            for way in &term.alternatives {
                writeln!(text, "  {}: {way:?}", term.name).unwrap();
            }
        }
    }
    text
}

fn sharing(sharing: &Sharing) -> String {
    let allowed = [
        sharing.allow_read_only_shared,
        sharing.allow_read_write_shared,
        sharing.allow_write_exclusive,
    ];
    let held = [
        sharing.read_only_shared,
        sharing.read_write_shared,
        sharing.write_exclusive,
        sharing.read_write_exclusive,
    ];
    format!("allows {allowed:?} held {held:?}")
}
