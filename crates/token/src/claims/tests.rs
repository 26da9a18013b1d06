use super::*;

/// The time of all tests.
const NOW: i64 = 1_800_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn reference(name: &str) -> Reference {
    Reference { name: name.to_owned(), uid: format!("{name}-uid") }
}

fn claims() -> Claims {
    Claims {
        audiences: vec!["api".to_owned(), "vault".to_owned()],
        expires: NOW + 600,
        issued: NOW,
        issuer: "i".to_owned(),
        id: "j".to_owned(),
        account: KubernetesClaim {
            namespace: "n".to_owned(),
            serviceaccount: reference("s"),
            ..KubernetesClaim::default()
        },
        not_before: NOW,
        subject: "system:serviceaccount:n:s".to_owned(),
    }
}

/// Every object exists, unless its name says otherwise.
fn find(kind: ReferencedKind, namespace: &str, name: &str) -> Option<StoredObject> {
    assert_eq!(namespace, if kind == ReferencedKind::Node { "" } else { "n" });
    let ago = |seconds: i64| Timestamp::from_second(NOW - seconds).ok();
    let known =
        |deleted| Some(StoredObject { uid: format!("{name}-uid"), deletion_timestamp: deleted });
    match name {
        "gone" => None,
        "again" => Some(StoredObject { uid: "new".to_owned(), deletion_timestamp: None }),
        "ending" => known(ago(-30)),
        "ended" => known(ago(30)),
        "stuck" => known(ago(61)),
        _ => known(None),
    }
}

fn check(claims: &Claims) -> Result<Bearer, TokenError> {
    claims.check(now(), &["api".to_owned()], find)
}

#[test]
fn a_token_is_valid_between_nbf_and_exp() {
    let table = [
        ("made now", 0, 0, 600, Ok(())),
        ("ended within the minute", -900, -900, -60, Ok(())),
        ("ended", -900, -900, -61, Err(TokenError::Expired)),
        ("a clock ahead", 60, 60, 600, Ok(())),
        ("not yet", 0, 61, 600, Err(TokenError::NotYetValid)),
        ("of the future", 61, 0, 600, Err(TokenError::IssuedInFuture)),
        ("of the future and not yet", 61, 61, 600, Err(TokenError::NotYetValid)),
        ("beyond all time", 0, 0, i64::MAX - NOW, Ok(())),
        ("before all time", 0, 0, i64::MIN, Err(TokenError::Expired)),
        ("good at the end of time", 0, i64::MAX - NOW, 0, Err(TokenError::NotYetValid)),
    ];
    for (why, issued, not_before, expires, expected) in table {
        let [issued, not_before, expires] =
            [issued, not_before, expires].map(|it: i64| it.saturating_add(NOW));
        let claims = Claims { issued, not_before, expires, ..claims() };
        assert_eq!(check(&claims).map(|_| ()), expected, "{why}");
    }
}

#[test]
fn a_token_is_valid_while_its_bound_objects_exist() {
    let bound = |account: KubernetesClaim| {
        let account = KubernetesClaim {
            namespace: "n".to_owned(),
            serviceaccount: reference("s"),
            ..account
        };
        check(&Claims { account, ..claims() }).map(|_| ()).map_err(|fault| fault.to_string())
    };
    let account = |name: &str| {
        let account = KubernetesClaim { serviceaccount: reference(name), ..claims().account };
        check(&Claims { account, ..claims() }).map(|_| ()).map_err(|fault| fault.to_string())
    };
    let refused = |words: &str| Err(words.to_owned());
    assert_eq!(account("s"), Ok(()));
    assert_eq!(account("gone"), refused("serviceaccounts \"gone\" not found"));
    let other = "service account UID (new) does not match claim (again-uid)";
    assert_eq!(account("again"), refused(other));
    assert_eq!(account("ending"), Ok(()));
    assert_eq!(account("ended"), Ok(()));
    assert_eq!(account("stuck"), refused("service account n/stuck has been deleted"));
    let none = KubernetesClaim::default();
    for (word, put) in [
        ("pod", (|of, it| of.pod = it) as fn(&mut KubernetesClaim, Option<Reference>)),
        ("secret", |of, it| of.secret = it),
        ("node", |of, it| of.node = it),
    ] {
        let with = |name: &str| {
            let mut account = none.clone();
            put(&mut account, Some(reference(name)));
            bound(account)
        };
        let rebound =
            format!("{word} UID (new) does not match service account {word} ref claim (again-uid)");
        let table = [
            ("there", Ok(())),
            ("ending", Ok(())),
            ("ended", Ok(())),
            ("stuck", refused("service account token has been invalidated")),
            ("gone", refused("service account token has been invalidated")),
            ("again", refused(&rebound)),
        ];
        for (name, expected) in table {
            assert_eq!(with(name), expected, "{word} {name}");
        }
    }
    let on_lost_node =
        KubernetesClaim { pod: Some(reference("p")), node: Some(reference("gone")), ..none };
    assert_eq!(bound(on_lost_node), Ok(()), "a pod outlives the object of its node");
}

#[test]
fn a_token_is_valid_for_its_audiences() {
    let asked = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        claims().check(now(), &names, find).map(|it| it.audiences).map_err(|it| it.to_string())
    };
    assert_eq!(asked(&["api"]), Ok(vec!["api".to_owned()]));
    assert_eq!(asked(&["x", "vault", "api"]), Ok(vec!["vault".to_owned(), "api".to_owned()]));
    let words = r#"token audiences ["api" "vault"] is invalid for the target audiences ["x" "y"]"#;
    assert_eq!(asked(&["x", "y"]), Err(words.to_owned()));
    let nobody = Claims { audiences: Vec::new(), ..claims() };
    assert!(check(&nobody).is_err(), "a token for nobody is for nobody");
}

#[test]
fn user_info_names_account_pod_and_node() {
    let key = |name: &str| format!("authentication.kubernetes.io/{name}");
    let extra = |pairs: &[(&str, &str)]| -> BTreeMap<String, Vec<String>> {
        pairs.iter().map(|(name, value)| (key(name), vec![(*value).to_owned()])).collect()
    };
    let bearer = check(&claims()).unwrap();
    assert_eq!((bearer.name.as_str(), bearer.uid.as_str()), ("system:serviceaccount:n:s", "s-uid"));
    assert_eq!(bearer.groups, ["system:serviceaccounts", "system:serviceaccounts:n"]);
    assert_eq!(bearer.extra, extra(&[("credential-id", "JTI=j")]));
    let node = Reference { name: "m".to_owned(), uid: String::new() };
    let account =
        KubernetesClaim { pod: Some(reference("p")), node: Some(node), ..claims().account };
    let bearer = check(&Claims { account, ..claims() }).unwrap();
    let expected =
        [("credential-id", "JTI=j"), ("pod-name", "p"), ("pod-uid", "p-uid"), ("node-name", "m")];
    assert_eq!(bearer.extra, extra(&expected));
}
