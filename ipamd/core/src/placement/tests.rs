#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use super::*;

fn node() -> NodeFacts {
    NodeFacts {
        instance_id: "i-1".into(),
        primary_eni: "eni-1".into(),
        vpc: "vpc-1".into(),
        zone: "eu-central-1a".into(),
        subnet: "subnet-own".into(),
        subnet_cidr: Some("10.0.0.0/24".parse().unwrap()),
        subnet_cidr_v6: None,
        security_groups: vec!["sg-node".into()],
        description: "aws-K8S-i-1".into(),
        tags: BTreeMap::new(),
    }
}

fn discovery() -> PoolConfig {
    PoolConfig {
        subnet_discovery: true,
        cluster_name: Some("blue".into()),
        ..PoolConfig::default()
    }
}

fn tags(tags: &[(&str, &str)]) -> BTreeMap<String, String> {
    tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn subnet(id: &str, free_addresses: u32, of: &[(&str, &str)]) -> SeenSubnet {
    SeenSubnet { id: id.into(), cidr: None, cidr_v6: None, free_addresses, tags: tags(of) }
}

/// The subnets that discovery offers, best first.
fn offered(config: &PoolConfig, seen: Vec<SeenSubnet>) -> Result<Vec<String>, NoPlacement> {
    let placement = place(config, &node(), &EniConfig::Unknown, &ZoneSubnets::Known(seen))?;
    Ok(placement.subnets.iter().map(|id| id.as_str().to_owned()).collect())
}

const BLUE: &str = "cni.networking.k8s.aws/cluster/blue";
const GREEN: &str = "cni.networking.k8s.aws/cluster/green";

#[test]
fn the_tag_table_holds_for_the_own_subnet_and_for_others() {
    for (of, own, other) in [
        (&[(TAG_ROLE, "0")][..], false, false),
        (&[(TAG_ROLE, "0"), (BLUE, "")], false, false),
        (&[], true, false),
        (&[(TAG_ROLE, "")], true, false),
        (&[(TAG_ROLE, "1")], true, true),
        (&[(TAG_ROLE, "yes")], true, true),
        (&[(TAG_ROLE, "1"), (BLUE, "shared")], true, true),
        (&[(TAG_ROLE, "1"), (BLUE, ""), (GREEN, "")], true, true),
        (&[(TAG_ROLE, "1"), (GREEN, "owned")], false, false),
        // The cluster tags count only together with the role tag.
        (&[(GREEN, "owned")], true, false),
        (&[(TAG_ROLE, ""), (GREEN, "owned")], true, false),
        // The older prefix of the cluster tags has no meaning.
        (&[(TAG_ROLE, "1"), ("kubernetes.io/cluster/green", "owned")], true, true),
    ] {
        let found = offered(&discovery(), vec![subnet("subnet-own", 9, of)]);
        assert_eq!(found.is_ok(), own, "own subnet: {of:?}");
        let found = offered(&discovery(), vec![subnet("subnet-2", 9, of)]);
        assert_eq!(found.is_ok(), other, "another subnet: {of:?}");
    }
}

#[test]
fn a_node_that_does_not_know_its_cluster_reads_no_cluster_tags() {
    let config = PoolConfig { cluster_name: None, ..discovery() };
    let green = subnet("subnet-2", 9, &[(TAG_ROLE, "1"), (GREEN, "owned")]);
    assert_eq!(offered(&config, vec![green]).unwrap(), ["subnet-2"]);
}

#[test]
fn the_subnet_with_most_free_addresses_comes_first_and_the_own_one_among_equals() {
    let shared = &[(TAG_ROLE, "1")][..];
    let seen = vec![
        subnet("subnet-a", 5, shared),
        subnet("subnet-b", 50, shared),
        subnet("subnet-own", 5, &[]),
        subnet("subnet-shut", 500, &[(TAG_ROLE, "0")]),
    ];
    assert_eq!(offered(&discovery(), seen).unwrap(), ["subnet-b", "subnet-own", "subnet-a"]);
}

#[test]
fn no_subnet_is_usable_if_all_are_excluded() {
    let shut = subnet("subnet-own", 9, &[(TAG_ROLE, "0")]);
    assert_eq!(offered(&discovery(), vec![shut]), Err(NoPlacement::AllForbidden));
}

#[test]
fn discovery_waits_for_an_answer_and_does_without_one_that_is_refused() {
    let place = |zone| place(&discovery(), &node(), &EniConfig::Unknown, &zone);
    assert_eq!(place(ZoneSubnets::Unknown), Err(NoPlacement::SubnetsUnknown));
    assert_eq!(place(ZoneSubnets::Unavailable).unwrap().subnets, ["subnet-own".into()]);
}

#[test]
fn without_discovery_it_is_the_nodes_own_subnet_whatever_its_tags() {
    let zone = ZoneSubnets::Known(vec![subnet("subnet-own", 9, &[(TAG_ROLE, "0")])]);
    let config = PoolConfig::default();
    let placement = place(&config, &node(), &EniConfig::Unknown, &zone).unwrap();
    assert_eq!(placement.subnets, ["subnet-own".into()]);
    assert_eq!(placement.groups, ["sg-node".into()]);
}

#[test]
fn an_eni_config_decides_alone() {
    let config = PoolConfig { custom_networking: true, ..discovery() };
    let place = |eni_config| place(&config, &node(), &eni_config, &ZoneSubnets::Unknown);
    let found =
        |groups| EniConfig::Found { name: "a".into(), subnet: "subnet-pods".into(), groups };
    let placement = place(found(vec!["sg-pods".into()])).unwrap();
    assert_eq!(placement.subnets, ["subnet-pods".into()]);
    assert_eq!(placement.groups, ["sg-pods".into()]);
    assert_eq!(place(found(Vec::new())).unwrap().groups, ["sg-node".into()]);
    assert_eq!(place(EniConfig::Unknown), Err(NoPlacement::EniConfigUnknown));
    let missing = EniConfig::Missing { name: "eu-central-1a".into(), why: "no such object".into() };
    let Err(NoPlacement::EniConfigMissing { name, .. }) = place(missing) else { panic!("a place") };
    assert_eq!(name, "eu-central-1a");
}

#[test]
fn existing_enis_are_excluded_only_in_a_subnet_with_role_zero() {
    for (of, shut) in [
        (&[(TAG_ROLE, "0")][..], true),
        (&[(TAG_ROLE, "1"), (GREEN, "")], false),
        (&[(TAG_ROLE, "")], false),
        (&[], false),
    ] {
        assert_eq!(is_shut(&subnet("subnet-2", 9, of)), shut, "{of:?}");
    }
}
