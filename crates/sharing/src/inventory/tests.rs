use super::*;

fn count(kind: ObjectKind, wins: ConflictRule) -> usize {
    inventory().iter().filter(|it| it.kind == kind && it.wins == wins).count()
}

/// Two entries for one object would be two rules for it.
#[test]
fn cs_4_every_object_has_one_rule_and_one_owner() {
    let entries = inventory();
    for (index, entry) in entries.iter().enumerate() {
        let same = |it: &&InventoryEntry| it.kind == entry.kind && it.name == entry.name;
        assert_eq!(entries.iter().filter(same).count(), 1, "{entry:?}");
        assert!(!entry.reason.is_empty() && !entry.wins.rule().is_empty(), "{index}");
    }
}

#[test]
fn cs_5_definitions_are_isolated_by_version_alone() {
    assert_eq!(
        count(ObjectKind::CustomResourceDefinition, ConflictRule::FirstOfAVersion),
        KINDS.len()
    );
    for kind in KINDS {
        assert_eq!(kind.crd_name(), format!("{}.{}", kind.plural, kind.group));
    }
}

#[test]
fn cs_6_to_cs_10_are_in_the_inventory() {
    assert_eq!(count(ObjectKind::ValidatingAdmissionPolicy, ConflictRule::LastApplied), 2);
    assert_eq!(count(ObjectKind::ValidatingAdmissionPolicyBinding, ConflictRule::LastApplied), 2);
    assert_eq!(count(ObjectKind::ClusterRole, ConflictRule::Sum), 1);
    assert_eq!(count(ObjectKind::ClusterRoleBinding, ConflictRule::ItsInstallation), 1);
    assert_eq!(count(ObjectKind::ClusterRoleBinding, ConflictRule::NotMade), 1);
    assert_eq!(count(ObjectKind::Namespace, ConflictRule::ItsInstallation), 1);
    assert_eq!(count(ObjectKind::MutatingWebhookConfiguration, ConflictRule::Operator), 2);
    assert_eq!(count(ObjectKind::ValidatingWebhookConfiguration, ConflictRule::Operator), 1);
}

#[test]
fn cs_30_policy_names_depend_on_nothing() {
    for entry in inventory().iter().filter(|it| it.wins == ConflictRule::LastApplied) {
        assert!(matches!(&entry.name, Name::Fixed(name) if name.contains("fma-")), "{entry:?}");
    }
}

#[test]
fn a_missing_right_names_the_role() {
    let definition = ObjectKind::CustomResourceDefinition;
    let table = [
        (definition, "launcherconfigs.fma.llm-d.ai", FMA_CRD_ADMIN),
        (definition, "appwrappers.workload.codeflare.dev", GANTRY_CRD_ADMIN),
        (definition, "others.example.com", CLUSTER_ADMIN),
        (ObjectKind::ValidatingAdmissionPolicy, "fma-immutable-fields", FMA_POLICY_ADMIN),
        (ObjectKind::ClusterRole, "fma-crd-admin", CLUSTER_ADMIN),
        (ObjectKind::MutatingWebhookConfiguration, "gantry-devices", DEVICES_WEBHOOK_ROLE),
        (ObjectKind::ValidatingWebhookConfiguration, "gantry-devices", DEVICES_WEBHOOK_ROLE),
        (ObjectKind::MutatingWebhookConfiguration, "gantry-queue", ACCESS_REVIEWS_ROLE),
        (ObjectKind::ValidatingWebhookConfiguration, "others", CLUSTER_ADMIN),
    ];
    for (kind, name, role) in table {
        assert_eq!(owner_role(kind, name), role, "{name}");
    }
}

#[test]
fn paths_are_those_of_the_kinds() {
    assert_eq!(ObjectKind::Namespace.path("n").unwrap().as_str(), "/api/v1/namespaces/n");
    assert!(ObjectKind::Namespace.path("n/../m").is_err());
    for kind in ObjectKind::ALL {
        let api_version = match kind.group() {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        };
        let path = ApiPath::object(&api_version, "", kind.plural(), "a.b");
        assert_eq!(kind.path("a.b"), path);
        assert_eq!(ObjectKind::of(kind.as_str()), Some(kind));
    }
    assert_eq!(ObjectKind::of("Pod"), None);
}
