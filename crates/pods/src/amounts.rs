//! Amounts of everything pods ask for, in whole numbers.

use std::collections::BTreeMap;
use std::fmt;

use gantry_api::quantity::{Format, Quantity};

use crate::Requests;

/// The resource that is counted as GPUs.
pub const GPU: &str = "nvidia.com/gpu";

/// Amounts: thousandths of a processor, bytes of memory, GPUs, and the rest by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Amounts {
    /// Thousandths of a processor.
    pub cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// GPUs.
    pub gpu: i64,
    /// Everything else by name; entries that are nothing are left out.
    pub others: BTreeMap<String, i64>,
}

impl Amounts {
    /// The three that are always counted, and the rest only if it is.
    #[must_use]
    pub fn of(requests: &Requests, rest: Rest) -> Self {
        let mut amounts = Self { cpu: requests.cpu, memory: requests.memory, ..Self::default() };
        amounts.gpu = requests.others.get(GPU).copied().unwrap_or_default();
        match rest {
            Rest::Ignored => {}
            Rest::Counted => {
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

    /// Whether there is nothing of anything.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Counts `other` in.
    pub fn add(&mut self, other: &Self) {
        self.join(other, i64::saturating_add);
    }

    /// Counts `other` out.
    pub fn take(&mut self, other: &Self) {
        self.join(other, i64::saturating_sub);
    }

    /// Raises each amount to that of `other` where it is smaller.
    pub fn raise_to(&mut self, other: &Self) {
        self.join(other, i64::max);
    }

    /// So many times this.
    #[must_use]
    pub fn times(&self, count: i64) -> Self {
        let mut product = self.clone();
        product.each(|amount| amount.saturating_mul(count));
        product
    }

    /// This without `other`, and never less than nothing.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.take(other);
        rest.at_least_nothing();
        rest
    }

    /// Takes away what is less than nothing.
    pub fn at_least_nothing(&mut self) {
        self.each(|amount| amount.max(0));
    }

    /// What of this is more than `available`, in the order it is told.
    #[must_use]
    pub fn lacking<'a>(&'a self, available: &Self) -> Vec<Lack<'a>> {
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
            .map(|(name, wanted, available)| Lack { name, wanted, available })
            .collect()
    }

    /// Whether all of this is available.
    #[must_use]
    pub fn fit(&self, available: &Self) -> bool {
        self.cpu <= available.cpu
            && self.memory <= available.memory
            && self.gpu <= available.gpu
            && self.others.iter().all(|(name, wanted)| {
                *wanted <= available.others.get(name).copied().unwrap_or_default()
            })
    }

    fn join(&mut self, other: &Self, with: fn(i64, i64) -> i64) {
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

    fn each(&mut self, change: impl Fn(i64) -> i64) {
        for amount in [&mut self.cpu, &mut self.memory, &mut self.gpu] {
            *amount = change(*amount);
        }
        for amount in self.others.values_mut() {
            *amount = change(*amount);
        }
        self.others.retain(|_, amount| *amount != 0);
    }
}

/// What becomes of resources that are not cpu, memory or GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rest {
    /// Nobody looks at them.
    #[default]
    Ignored,
    /// They count like the others.
    Counted,
}

/// Something of which there is too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack<'a> {
    /// What.
    pub name: &'a str,
    /// How much is wanted.
    pub wanted: i64,
    /// How much there is.
    pub available: i64,
}

impl fmt::Display for Lack<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let say = |amount| spell(self.name, amount);
        let missing = self.wanted.saturating_sub(self.available);
        let (wanted, available) = (say(self.wanted), say(self.available));
        write!(to, "{}: needs {wanted}, {available} available, {} missing", self.name, say(missing))
    }
}

/// An amount of a resource as people write it.
#[must_use]
pub fn spell(name: &str, amount: i64) -> String {
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
    fn what_lacks_is_told_with_what_is_missing() {
        let wanted = amounts(2500, 3 << 30, 2, 0);
        let lacks: Vec<String> =
            wanted.lacking(&amounts(1000, 1 << 30, 2, 5)).iter().map(Lack::to_string).collect();
        assert_eq!(
            lacks,
            [
                "cpu: needs 2500m, 1 available, 1500m missing",
                "memory: needs 3Gi, 1Gi available, 2Gi missing",
            ]
        );
        assert!(!wanted.fit(&amounts(1000, 1 << 30, 2, 5)));
        assert!(wanted.fit(&amounts(2500, 3 << 30, 2, 0)), "exactly enough is enough");
        assert!(!amounts(0, 0, 0, 1).fit(&amounts(9, 9, 9, 0)), "others count where they are");
    }

    #[test]
    fn sums_leave_nothing_behind() {
        let mut sum = amounts(1, 2, 3, 4);
        sum.add(&amounts(10, 20, 30, 40));
        assert_eq!(sum, amounts(11, 22, 33, 44));
        sum.take(&amounts(11, 22, 33, 44));
        assert!(sum.is_nothing());
        assert_eq!(amounts(1, 2, 0, 3).times(3), amounts(3, 6, 0, 9));
        assert_eq!(amounts(1, 5, 0, 3).without(&amounts(2, 2, 2, 9)), amounts(0, 3, 0, 0));
    }
}
