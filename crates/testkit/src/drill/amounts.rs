//! Amounts of processors, memory and accelerators.

use gantry_api::quantity::Quantity;
use serde_json::{Value, json};

/// The name by which pods request accelerators.
const GPU: &str = "nvidia.com/gpu";

/// An amount of each resource; everything in a drill is counted in whole units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    /// Processors.
    pub(super) cpu: i64,
    /// Bytes.
    pub(super) memory: i64,
    /// Accelerators.
    pub(super) gpu: i64,
}

/// A gigabyte of memory.
pub(super) const GI: i64 = 1 << 30;

impl Amounts {
    /// Reads a map of quantities; missing entries are zero.
    pub(super) fn read(map: &Value) -> Self {
        let amount = |name: &str| {
            let quantity = match &map[name] {
                Value::String(text) => Quantity::parse(text).ok(),
                Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
                _ => None,
            };
            quantity.map_or(0, Quantity::value_rounded_up)
        };
        Self { cpu: amount("cpu"), memory: amount("memory"), gpu: amount(GPU) }
    }

    /// Returns the amounts as a map of quantities.
    pub(super) fn write(self) -> Value {
        let Self { cpu, memory, gpu } = self;
        let mut map = json!({"cpu": cpu.to_string(), "memory": format!("{}Gi", memory / GI)});
        if gpu > 0 {
            map[GPU] = json!(gpu.to_string());
        }
        map
    }

    /// Returns a multiple.
    pub(super) fn times(self, count: u32) -> Self {
        let count = i64::from(count);
        Self { cpu: self.cpu * count, memory: self.memory * count, gpu: self.gpu * count }
    }

    /// Returns a percentage, in whole units.
    pub(super) fn percent(self, percent: i64) -> Self {
        let part = |amount: i64| amount * percent / 100;
        Self { cpu: part(self.cpu), memory: part(self.memory / GI) * GI, gpu: part(self.gpu) }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        self.gpu += other.gpu;
    }

    /// Returns whether no amount exceeds that of `limit`.
    pub(super) fn fits(self, limit: Self) -> bool {
        self.cpu <= limit.cpu && self.memory <= limit.memory && self.gpu <= limit.gpu
    }

    pub(super) fn is_zero(self) -> bool {
        self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_round_trip() {
        let some = Amounts { cpu: 3, memory: 5 * GI, gpu: 8 };
        assert_eq!(Amounts::read(&some.write()), some);
        assert_eq!(Amounts::read(&json!({"cpu": 3})), Amounts { cpu: 3, ..Amounts::default() });
        assert!(Amounts::read(&json!(null)).is_zero());
        assert_eq!(some.times(2).percent(50), some);
        assert!(some.fits(some) && !some.times(2).fits(some));
    }
}
