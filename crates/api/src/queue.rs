//! Groups `workload.codeflare.dev` and `quota.codeflare.dev`: jobs that wait as a whole, and the
//! quota trees they are charged to.

mod quota_subtree;

pub use quota_subtree::{
    ChildAllocation, ChildQuota, QuotaSubtree, QuotaSubtreeSpec, QuotaSubtreeStatus, Quotas,
};
