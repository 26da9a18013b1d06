//! The manifests, applied to a server that lets roles decide: what the operator may do, and what
//! not.

use super::site;
use crate::shared_operator::{rb_1, rb_2, rb_3};

#[tokio::test(flavor = "multi_thread")]
async fn rb_1_the_operator_may_do_what_it_does_and_nothing_else() {
    let (_server, site) = site().await;
    rb_1(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_2_a_platform_adds_kinds_by_a_label() {
    let (_server, site) = site().await;
    rb_2(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_3_every_manifest_is_accepted_twice_and_changes_nothing_the_second_time() {
    let (_server, site) = site().await;
    rb_3(&site).await;
}
