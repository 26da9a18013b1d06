//! Problems with room and with twins: devices, pools and terms that differ in nothing. The search
//! leaves most of their permutations out, and must not leave out an answer with them.

use gantry_api::devices::AccessMode;
use gantry_api::quantity::Quantity;
use gantry_devices::problem::{Count, Draws, Grain, Stock, Verdict};

use crate::generate::{Case, Dice, case};

/// The most devices of a problem: the oracle looks at every set of them.
const DEVICES: usize = 7;

/// The problem of a seed, less strict and with twins.
pub(crate) fn twins(seed: u64) -> Case {
    let mut problem = case(seed);
    let mut dice = Dice::new(!seed);
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

/// The problem of a seed in which terms of one claim have reason to share devices: several of each claim
/// ask for little of what a device has, or only read it.
pub(crate) fn siblings(seed: u64) -> Case {
    let mut problem = twins(seed);
    let mut dice = Dice::new(seed.rotate_left(17));
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

/// Drops some of what makes most random problems hopeless.
fn relax(problem: &mut Case, dice: &mut Dice) {
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
        pool.fault = None;
        if let Stock::Listed(devices) = &mut pool.stock {
            let entries = devices.iter_mut().flat_map(|device| &mut device.entries);
            entries.filter(|_| roomy).for_each(|entry| entry.capacity += 4 * Grain::UNIT);
            devices.iter_mut().filter(|_| dice.chance(70)).for_each(|device| {
                device.taints.clear();
                device.sharing.read_write_exclusive = 0;
            });
        }
    }
}

/// Lists devices and pools again.
fn double_devices(problem: &mut Case, dice: &mut Dice) {
    let mut room = DEVICES.saturating_sub(problem.pools.iter().map(|p| size(&p.stock)).sum());
    for pool in &mut problem.pools {
        let Stock::Listed(devices) = &mut pool.stock else { continue };
        for device in devices.clone() {
            if room > 0 && dice.chance(45) {
                room -= 1;
                let at = usize::try_from(dice.below(1 + devices.len() as u64)).unwrap();
                devices.insert(at, device);
            }
        }
    }
    for pool in problem.pools.clone() {
        let size = size(&pool.stock);
        if size <= room && dice.chance(50) {
            room -= size;
            let at = usize::try_from(dice.below(1 + problem.pools.len() as u64)).unwrap();
            problem.pools.insert(at, pool);
        }
    }
}

fn size(stock: &Stock) -> usize {
    match stock {
        Stock::Listed(devices) => devices.len(),
        Stock::Counted(counted) => usize::try_from(counted.count).unwrap(),
    }
}
