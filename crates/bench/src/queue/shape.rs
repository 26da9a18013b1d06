//! The submitted workload: that of Kueue's own scheduler benchmark.

use std::time::Duration;

use serde_json::{Value, json};

/// Jobs of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// How many are submitted to each queue.
    pub(crate) count: usize,
    /// The pause before each submission.
    pub(crate) every: Duration,
    /// How long each runs.
    pub(crate) runs: Duration,
    pub(crate) priority: i32,
    pub(crate) cpu: u32,
}

/// Queues in cohorts, all alike. Queues may borrow the unused quota of others in their cohort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) cohorts: usize,
    /// Queues in each cohort.
    pub(crate) queues: usize,
    /// CPUs that each queue owns.
    pub(crate) quota: u32,
    pub(crate) classes: [Class; 3],
}

/// One queue: a namespace, and a leaf of the quota tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) cohort: String,
}

const fn class(
    name: &'static str,
    count: usize,
    [every, runs]: [u64; 2],
    priority: i32,
    cpu: u32,
) -> Class {
    let (every, runs) = (Duration::from_millis(every), Duration::from_millis(runs));
    Class { name, count, every, runs, priority, cpu }
}

impl Shape {
    /// 15,000 jobs in 30 queues.
    pub(crate) const BASELINE: Self = Self {
        name: "baseline",
        cohorts: 5,
        queues: 6,
        quota: 20,
        classes: [
            class("small", 350, [100, 200], 50, 1),
            class("medium", 100, [500, 500], 100, 5),
            class("large", 50, [1200, 1000], 200, 20),
        ],
    };

    /// 50,000 jobs in 1,000 queues.
    pub(crate) const LARGE_SCALE: Self = Self {
        name: "large-scale",
        cohorts: 10,
        queues: 100,
        quota: 20,
        classes: [
            class("small", 35, [60, 150], 50, 1),
            class("medium", 11, [300, 350], 100, 5),
            class("large", 4, [700, 700], 200, 20),
        ],
    };

    /// Returns the same queues with this share of the jobs, at least one of each class.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of jobs are far below 2^52, and the share is not negative"
    )]
    pub(crate) fn scaled(mut self, share: f64) -> Self {
        for class in &mut self.classes {
            class.count = ((class.count as f64 * share).round() as usize).max(1);
        }
        self
    }

    /// The number of all jobs.
    pub(crate) fn jobs(&self) -> usize {
        let each: usize = self.classes.iter().map(|class| class.count).sum();
        self.cohorts * self.queues * each
    }

    /// The quota of a cohort, and of all queues together.
    pub(crate) fn cpus(&self) -> (u64, u64) {
        let cohort = u64::from(self.quota) * self.queues as u64;
        (cohort, cohort * self.cohorts as u64)
    }

    /// All queues, by the names that Kueue's runner gives them.
    pub(crate) fn all_queues(&self) -> Vec<Queue> {
        let queue = |cohort: usize, nth: usize| {
            let cohort = cohort_name(cohort);
            Queue { name: format!("cq-0-{nth}-{cohort}"), cohort }
        };
        let cohorts = 0..self.cohorts;
        cohorts.flat_map(|cohort| (0..self.queues).map(move |nth| queue(cohort, nth))).collect()
    }

    /// Returns the same shape in the format of Kueue's runner.
    pub(crate) fn generator(&self) -> Value {
        let sets = self.classes.iter().map(|class| {
            json!({
                "count": class.count,
                "creationIntervalMs": class.every.as_millis(),
                "workloads": [{
                    "className": class.name,
                    "runtimeMs": class.runs.as_millis(),
                    "priority": class.priority,
                    "request": class.cpu.to_string(),
                }],
            })
        });
        json!({"cohorts": [{
            "className": "cohort",
            "count": self.cohorts,
            "queuesSets": [{
                "className": "cq",
                "count": self.queues,
                "nominalQuota": self.quota.to_string(),
                "borrowingLimit": "100",
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerPriority",
                "workloadsSets": sets.collect::<Vec<_>>(),
            }],
        }]})
    }
}

/// The name of a cohort.
pub(crate) fn cohort_name(index: usize) -> String {
    format!("cohort-{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_1_the_shapes_are_those_of_kueue() {
        let (baseline, large) = (Shape::BASELINE, Shape::LARGE_SCALE);
        assert_eq!((baseline.jobs(), baseline.cpus()), (15_000, (120, 600)));
        assert_eq!((large.jobs(), large.cpus()), (50_000, (2_000, 20_000)));
        let queues = baseline.all_queues();
        assert_eq!(queues.len(), 30);
        assert_eq!(queues[7].name, "cq-0-1-cohort-1");
    }

    #[test]
    fn a_share_keeps_the_queues_and_every_class() {
        let tenth = Shape::BASELINE.scaled(0.1);
        assert_eq!(tenth.classes.map(|class| class.count), [35, 10, 5]);
        assert_eq!(tenth.all_queues(), Shape::BASELINE.all_queues());
        let least = Shape::LARGE_SCALE.scaled(0.0);
        assert_eq!(least.classes.map(|class| class.count), [1, 1, 1]);
    }

    #[test]
    fn kueue_gets_the_same_shape() {
        let generator = Shape::BASELINE.generator();
        let queues = &generator["cohorts"][0]["queuesSets"][0];
        assert_eq!((&generator["cohorts"][0]["count"], &queues["count"]), (&json!(5), &json!(6)));
        let large = json!({"count": 50, "creationIntervalMs": 1200, "workloads": [
            {"className": "large", "runtimeMs": 1000, "priority": 200, "request": "20"}]});
        assert_eq!(queues["workloadsSets"][2], large);
    }
}
