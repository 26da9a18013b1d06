//! Scenarios of actuation on the embedded cluster, with controllers in an operator beside it; they
//! take minutes, so that `make test-actuation` runs them.

use std::pin::Pin;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;

use crate::shared_actuation::{Server, Site, scenarios};

fn start(settings: &'static str) -> Pin<Box<dyn Future<Output = Site> + Send>> {
    Box::pin(async move {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster().data(&data);
        let plan = plan.flag("--no-actuation").flag("--no-queue");
        let process = plan.start(&Clock::system()).await.unwrap();
        let server = Server {
            target: process.target().clone(),
            kubeconfig: process.kubeconfig().to_str().unwrap().to_owned(),
            ledgers: data.join("accelerators"),
            tails: Box::new(move || format!("{}{}", folder.path().display(), process.tails())),
        };
        Site::new(server, settings).await
    })
}

scenarios!(start:
    bad_input {
        an_older_launcher_serves_too,
        as_78_and_templates_that_are_invalid_have_a_status,
        engines_that_do_not_start_are_reported,
    }
    direct {
        as_3_and_as_11_nodes_that_go_and_nodes_that_are_cordoned,
        as_7_and_as_8_the_sleeper_used_least_recently_is_deleted,
        as_17_a_bad_patch_has_a_status_and_a_corrected_one_serves,
        as_18_the_requester_follows_the_readiness_of_its_engine,
    }
    failures {
        as_9_deletions_are_completed_by_the_next_controllers,
        as_70_and_as_85_a_killed_engine_is_replaced_and_its_log_is_shown,
        as_71_an_engine_that_cannot_be_woken_is_replaced,
        as_84_a_failed_launcher_is_replaced,
    }
    hand_over {
        as_66_the_next_engine_waits_for_one_that_does_not_sleep,
        as_67_two_requesters_meet_while_no_controller_runs,
        as_68_servers_that_share_one_of_two_accelerators_wait,
    }
    launchers {
        as_19_to_as_22_a_launcher_of_the_stock_serves,
        as_23_two_engines_on_one_port_are_in_two_launchers,
        as_24_to_as_27_and_as_74_hot_warm_and_who_makes_way,
        as_28_restarted_controllers_change_nothing_and_wake_a_sleeper,
        as_29_and_as_30_instances_of_an_edited_config_are_deleted,
        as_31_a_deleted_launcher_leaves_no_stale_state,
        as_32_an_instance_that_was_removed_dooms_its_requester,
    }
    manifests {
        as_13_manifests_of_the_original_pair,
    }
    population {
        as_53_as_55_and_as_77_launchers_that_cannot_start,
        as_75_launchers_with_sleepers_are_replaced_one_at_a_time,
        as_76_excess_launchers_with_sleepers_stay_and_empty_ones_go,
    }
    serving {
        as_72_an_engine_put_to_sleep_by_hand_is_woken,
        as_73_requests_end_normally_until_the_drain_limit,
        as_79_a_launcher_whose_bookkeeping_is_lost_is_deleted,
        as_80_a_slow_launcher_delays_nobody_else,
        as_82_a_proxy_is_configured_before_readiness_and_once,
    }
);
