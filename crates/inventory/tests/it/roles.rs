//! Clusters and roles.

use gantry_inventory::{Backend, Role, Source, clusters, has_errors, read};

use super::{input, read_well, rendered, source};

/// `name backend role=hosts …` of every cluster.
fn summary(text: &str) -> Vec<String> {
    let inventory = read_well(&[("hosts.yaml", text)]);
    let (clusters, findings) = clusters(&inventory);
    assert!(!has_errors(&findings), "{}", rendered(&inventory, &findings));
    let name = |id: &gantry_inventory::HostId| inventory.tree.host(*id).name.as_str();
    let line = |cluster: &gantry_inventory::Cluster| {
        let roles = cluster.roles.iter().map(|(role, hosts)| {
            let hosts: Vec<&str> = hosts.iter().map(name).collect();
            format!("{role:?}={}", hosts.join(","))
        });
        let roles: Vec<String> = roles.collect();
        format!("{} {:?} {}", cluster.name, cluster.backend, roles.join(" "))
    };
    clusters.iter().map(line).collect()
}

#[test]
fn prv_10_hosts_have_roles_by_their_groups() {
    let table = [
        ("one master", "master: {hosts: {a: }}\n", vec!["gantry Kind Master=a Etcd=a Front=a"]),
        (
            "other names of roles",
            "kube-master: {hosts: {a: }}\nworkers: {children: {gpu: {hosts: {b: , c: }}}}\n\
             lb: {hosts: {d: }}\n",
            vec!["gantry Kubeadm Master=a Minion=b,c Etcd=a Front=d"],
        ),
        (
            "etcd of its own",
            "master: {hosts: {a: }}\nminion: {hosts: {b: }}\netcd: {hosts: {c: }}\n\
             nfs: {hosts: {d: }}\n",
            vec!["gantry Kubeadm Master=a Minion=b Etcd=c Nfs=d Front=a"],
        ),
        (
            "a host in two roles",
            "master: {hosts: {a: }}\nminion: {hosts: {a: }}\n",
            vec!["gantry Kubeadm Master=a Minion=a Etcd=a Front=a"],
        ),
    ];
    for (why, text, expected) in table {
        assert_eq!(summary(text), expected, "{why}");
    }
}

#[test]
fn prv_26_with_kind_each_master_is_a_cluster() {
    let text = "all: {vars: {gantry_backend: kind, gantry_cluster_name: mls}}\n\
                master: {hosts: {a: , b: }}\n";
    let expected = ["mls-a Kind Master=a Etcd=a Front=a", "mls-b Kind Master=b Etcd=b Front=b"];
    assert_eq!(summary(text), expected);
    let named = "all: {vars: {gantry_backend: kind}}\n\
                 master: {hosts: {a: {gantry_cluster_name: x}, b: {gantry_cluster_name: y}}}\n";
    let expected = ["x Kind Master=a Etcd=a Front=a", "y Kind Master=b Etcd=b Front=b"];
    assert_eq!(summary(named), expected);
}

#[test]
fn prv_10_one_inventory_has_several_clusters() {
    let text = "one: {vars: {gantry_cluster_name: one}, hosts: {a: , b: }}\n\
                two: {vars: {gantry_cluster_name: two}, hosts: {c: }}\n\
                master: {hosts: {a: , c: }}\nminion: {hosts: {b: }}\n";
    let expected =
        ["one Kubeadm Master=a Minion=b Etcd=a Front=a", "two Kind Master=c Etcd=c Front=c"];
    assert_eq!(summary(text), expected);
}

#[test]
fn prv_7_hosts_of_a_list_are_masters() {
    let (inventory, findings) = read(&input(vec![Source::Hosts("local,".to_owned())]));
    assert_eq!(rendered(&inventory, &findings), "");
    let (clusters, findings) = clusters(&inventory);
    assert_eq!(rendered(&inventory, &findings), "");
    assert_eq!(clusters.len(), 1);
    assert_eq!(clusters[0].with_role(Role::Master).len(), 1);
    assert_eq!(clusters[0].backend, Backend::Kind);
}

#[test]
fn prv_34_kind_in_production_is_acknowledged() {
    let text = "master: {hosts: {a: {gantry_environment: prod}}}\n\
                all: {vars: {gantry_acknowledge: [kind-in-prod]}}\n";
    assert_eq!(summary(text).len(), 1);
}

#[test]
fn prv_25_a_minion_of_kind_names_both_ways_out() {
    let text = "all: {vars: {gantry_backend: kind}}\nmaster: {hosts: {a: }}\n\
                minion: {hosts: {b: }}\n";
    let (inventory, _) = read(&input(vec![source(&[("hosts.yaml", text)])]));
    let (_, findings) = clusters(&inventory);
    let text = rendered(&inventory, &findings);
    assert!(text.contains("hosts.yaml:3:18"), "{text}");
    assert!(text.contains("from a backup") && text.contains("gantry_backend: kubeadm"), "{text}");
}
