//! Integer amounts of every resource that pods request.

use std::collections::BTreeMap;
use std::fmt;

use gantry_api::quantity::{Format, Quantity};

use gantry_pods::Requests;

/// The resource that is counted as GPUs.
pub const GPU: &str = "nvidia.com/gpu";

/// Amounts: millicores of CPU, bytes of memory, GPUs, and all other resources by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Amounts {
    /// Millicores of CPU.
    pub cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// GPUs.
    pub gpu: i64,
    /// All other resources by name; entries of zero are left out.
    pub others: BTreeMap<String, i64>,
}

impl Amounts {
    /// Returns cpu, memory and GPUs, and the other resources only if they are counted.
    #[must_use]
    pub fn of(requests: &Requests, rest: OtherResources) -> Self {
        let mut amounts = Self { cpu: requests.cpu, memory: requests.memory, ..Self::default() };
        amounts.gpu = requests.others.get(GPU).copied().unwrap_or_default();
        match rest {
            OtherResources::Ignored => {}
            OtherResources::Counted => {
                let storage = ("ephemeral-storage", requests.storage);
                let others = requests.others.iter().map(|(name, it)| (name.as_str(), *it));
                for (name, amount) in others.chain([storage]) {
                    if name != GPU && amount != 0 {
                        amounts.others.insert(name.to_owned(), amount);
                    }
                }
            }
        }
        amounts
    }

    /// Whether every amount is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts `other`.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// Raises each amount to that of `other` where it is smaller.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    /// Returns these amounts times a number.
    #[must_use]
    pub fn times(&self, count: i64) -> Self {
        let mut product = self.clone();
        product.map_each(|amount| amount.saturating_mul(count));
        product
    }

    /// Subtracts `other` and clamps at zero.
    #[must_use]
    pub fn saturating_sub(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        rest.clamp_to_zero();
        rest
    }

    /// Clamps negative amounts to zero.
    pub fn clamp_to_zero(&mut self) {
        self.map_each(|amount| amount.max(0));
    }

    /// Lists the resources of which this exceeds `available`, in the order in which they are
    /// reported.
    #[must_use]
    pub fn insufficient<'a>(&'a self, available: &Self) -> Vec<InsufficientResource<'a>> {
        let named = [
            ("cpu", self.cpu, available.cpu),
            ("memory", self.memory, available.memory),
            (GPU, self.gpu, available.gpu),
        ];
        let others = self.others.iter().map(|(name, wanted)| {
            (name.as_str(), *wanted, available.others.get(name).copied().unwrap_or_default())
        });
        let all = named.into_iter().chain(others);
        all.filter(|(_, wanted, available)| wanted > available)
            .map(|(name, wanted, available)| InsufficientResource {
                name,
                requested: wanted,
                available,
            })
            .collect()
    }

    /// Whether all of this is available.
    #[must_use]
    pub fn fits_in(&self, available: &Self) -> bool {
        self.cpu <= available.cpu
            && self.memory <= available.memory
            && self.gpu <= available.gpu
            && self.others.iter().all(|(name, wanted)| {
                *wanted <= available.others.get(name).copied().unwrap_or_default()
            })
    }

    fn combine(&mut self, other: &Self, with: fn(i64, i64) -> i64) {
        self.cpu = with(self.cpu, other.cpu);
        self.memory = with(self.memory, other.memory);
        self.gpu = with(self.gpu, other.gpu);
        for (name, amount) in &other.others {
            let have = self.others.entry(name.clone()).or_default();
            *have = with(*have, *amount);
            if *have == 0 {
                self.others.remove(name);
            }
        }
    }

    fn map_each(&mut self, change: impl Fn(i64) -> i64) {
        for amount in [&mut self.cpu, &mut self.memory, &mut self.gpu] {
            *amount = change(*amount);
        }
        for amount in self.others.values_mut() {
            *amount = change(*amount);
        }
        self.others.retain(|_, amount| *amount != 0);
    }
}

/// How resources other than cpu, memory and GPUs are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OtherResources {
    /// They are ignored.
    #[default]
    Ignored,
    /// They count like the others.
    Counted,
}

/// A resource of which too little is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsufficientResource<'a> {
    /// The resource.
    pub name: &'a str,
    /// The requested amount.
    pub requested: i64,
    /// The available amount.
    pub available: i64,
}

impl fmt::Display for InsufficientResource<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let say = |amount| format_amount(self.name, amount);
        let missing = self.requested.saturating_sub(self.available);
        let (wanted, available) = (say(self.requested), say(self.available));
        write!(to, "{}: needs {wanted}, {available} available, {} missing", self.name, say(missing))
    }
}

/// Formats an amount of a resource as users write it.
#[must_use]
pub fn format_amount(name: &str, amount: i64) -> String {
    let quantity = match name {
        "cpu" if amount % 1000 == 0 => Quantity::from_int(amount / 1000, Format::DecimalSi),
        "cpu" => return format!("{amount}m"),
        "memory" | "ephemeral-storage" => Quantity::from_int(amount, Format::BinarySi),
        _ => Quantity::from_int(amount, Format::DecimalSi),
    };
    quantity.map_or_else(|_| amount.to_string(), |it| it.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: i64, memory: i64, gpu: i64, disk: i64) -> Amounts {
        let others = [("disk".to_owned(), disk)].into_iter().filter(|it| it.1 != 0).collect();
        Amounts { cpu, memory, gpu, others }
    }

    #[test]
    fn insufficient_resources_are_listed() {
        let wanted = amounts(2500, 3 << 30, 2, 0);
        let lacks: Vec<String> = wanted
            .insufficient(&amounts(1000, 1 << 30, 2, 5))
            .iter()
            .map(InsufficientResource::to_string)
            .collect();
        assert_eq!(
            lacks,
            [
                "cpu: needs 2500m, 1 available, 1500m missing",
                "memory: needs 3Gi, 1Gi available, 2Gi missing",
            ]
        );
        assert!(!wanted.fits_in(&amounts(1000, 1 << 30, 2, 5)));
        assert!(wanted.fits_in(&amounts(2500, 3 << 30, 2, 0)), "exactly enough is enough");
        assert!(!amounts(0, 0, 0, 1).fits_in(&amounts(9, 9, 9, 0)), "others count where they are");
    }

    #[test]
    fn zero_entries_are_removed_from_sums() {
        let mut sum = amounts(1, 2, 3, 4);
        sum.add(&amounts(10, 20, 30, 40));
        assert_eq!(sum, amounts(11, 22, 33, 44));
        sum.subtract(&amounts(11, 22, 33, 44));
        assert!(sum.is_zero());
        assert_eq!(amounts(1, 2, 0, 3).times(3), amounts(3, 6, 0, 9));
        assert_eq!(amounts(1, 5, 0, 3).saturating_sub(&amounts(2, 2, 2, 9)), amounts(0, 3, 0, 0));
    }
}
