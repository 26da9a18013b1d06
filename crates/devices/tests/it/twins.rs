//! Problems with free capacity and with twins: devices, pools and terms that differ in nothing. The
//! search leaves most of their permutations out, and must not lose a solution with them.

use gantry_api::devices::AccessMode;
use gantry_api::quantity::Quantity;
use gantry_devices::problem::{Count, Draws, Granularity, PoolDevices, Verdict};

use crate::generate::{ProblemCase, SeededRandom, case};

/// The most devices of a problem: the oracle tries every set of them.
const DEVICES: usize = 7;

/// Returns the problem of a seed, less strict and with twins.
pub(crate) fn twins(seed: u64) -> ProblemCase {
    let mut problem = case(seed);
    let mut dice = SeededRandom::new(!seed);
    relax(&mut problem, &mut dice);
    double_devices(&mut problem, &mut dice);
    for claim in &mut problem.request.claims {
        if claim.terms.len() < 3 && dice.chance(40) {
            claim.terms.push(claim.terms[0].clone());
        }
    }
    if problem.request.claims.len() == 1 && dice.chance(30) {
        problem.request.claims.push(problem.request.claims[0].clone());
    }
    problem
}

/// Returns the problem of a seed in which terms of one claim have reason to share devices: several
/// of each claim request little of what a device has, or only read it.
pub(crate) fn siblings(seed: u64) -> ProblemCase {
    let mut problem = twins(seed);
    let mut dice = SeededRandom::new(seed.rotate_left(17));
    for claim in &mut problem.request.claims {
        if claim.terms.len() < 2 {
            claim.terms.push(claim.terms[0].clone());
        }
        for alternative in claim.terms.iter_mut().flat_map(|term| &mut term.alternatives) {
            if dice.chance(80) {
                alternative.distinct_attributes.clear();
            }
            match dice.below(4) {
                0 => {}
                1 => alternative.mode = Some(AccessMode::ReadOnlyShared),
                _ => {
                    let amount = Quantity::parse(&(1 + dice.below(2)).to_string()).unwrap();
                    alternative.draws = Draws::Together(vec![("memory".to_owned(), amount)]);
                    alternative.mode = None;
                }
            }
        }
    }
    problem
}

/// Drops some of what makes most random problems unsatisfiable.
fn relax(problem: &mut ProblemCase, dice: &mut SeededRandom) {
    let request = &mut problem.request;
    for row in &mut request.verdicts {
        if dice.chance(60) {
            *row = row.iter().map(|_| Verdict::Met).collect();
        }
    }
    if dice.chance(70) {
        request.topologies.clear();
    }
    for claim in &mut request.claims {
        if dice.chance(60) {
            claim.distinct_attributes.clear();
        }
        if dice.chance(50) {
            claim.match_attributes.truncate(1);
        }
        for alternative in claim.terms.iter_mut().flat_map(|term| &mut term.alternatives) {
            if dice.chance(60) {
                alternative.distinct_attributes.clear();
            }
            if dice.chance(50) {
                alternative.topologies.clear();
            }
            if dice.chance(30) {
                alternative.draws = Draws::default();
            }
            if dice.chance(70)
                && let Count::Between { least, most } = &mut alternative.count
                && *least > 1
            {
                (*least, *most) = (*least - 1, *most - 1);
            }
        }
    }
    let roomy = dice.chance(40);
    for pool in &mut problem.pools {
        pool.invalid_reason = None;
        if let PoolDevices::Listed(devices) = &mut pool.devices {
            let entries = devices.iter_mut().flat_map(|device| &mut device.capacities);
            entries.filter(|_| roomy).for_each(|entry| entry.capacity += 4 * Granularity::UNIT);
            devices.iter_mut().filter(|_| dice.chance(70)).for_each(|device| {
                device.taints.clear();
                device.sharing.read_write_exclusive = 0;
            });
        }
    }
}

/// Lists devices and pools again.
fn double_devices(problem: &mut ProblemCase, dice: &mut SeededRandom) {
    let mut free = DEVICES.saturating_sub(problem.pools.iter().map(|p| size(&p.devices)).sum());
    for pool in &mut problem.pools {
        let PoolDevices::Listed(devices) = &mut pool.devices else { continue };
        for device in devices.clone() {
            if free > 0 && dice.chance(45) {
                free -= 1;
                let at = usize::try_from(dice.below(1 + devices.len() as u64)).unwrap();
                devices.insert(at, device);
            }
        }
    }
    for pool in problem.pools.clone() {
        let size = size(&pool.devices);
        if size <= free && dice.chance(50) {
            free -= size;
            let at = usize::try_from(dice.below(1 + problem.pools.len() as u64)).unwrap();
            problem.pools.insert(at, pool);
        }
    }
}

fn size(stock: &PoolDevices) -> usize {
    match stock {
        PoolDevices::Listed(devices) => devices.len(),
        PoolDevices::Counted(counted) => usize::try_from(counted.count).unwrap(),
    }
}
