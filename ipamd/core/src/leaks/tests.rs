use super::*;

fn leftover(eni: &str) -> Leftover {
    let tags = [(TAG_CLUSTER, "blue"), (TAG_NODE_GROUP, "default"), (TAG_INSTANCE, "i-9")];
    Leftover {
        eni: eni.into(),
        subnet: "subnet-1".into(),
        tags: tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        description: "aws-K8S-i-9".into(),
        age: Some(Span::seconds(3000)),
        created_unreadable: false,
        available: true,
    }
}

fn ours() -> BTreeMap<String, String> {
    let signs = [(TAG_CLUSTER, "blue"), (TAG_NODE_GROUP, "default")];
    signs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn without(tag: &str) -> Leftover {
    let mut leftover = leftover("eni-1");
    leftover.tags.remove(tag);
    leftover
}

fn with(tag: &str, value: &str) -> Leftover {
    let mut leftover = leftover("eni-1");
    leftover.tags.insert(tag.into(), value.into());
    leftover
}

#[test]
fn an_eni_is_leaked_only_if_it_is_ours_unused_and_old() {
    let plain = leftover("eni-1");
    let age = |age| Leftover { age, ..plain.clone() };
    for (found, wanted) in [
        (plain.clone(), Verdict::Leaked),
        (without(TAG_CLUSTER), Verdict::Spare),
        (without(TAG_NODE_GROUP), Verdict::Spare),
        (without(TAG_INSTANCE), Verdict::Spare),
        (with(TAG_CLUSTER, "green"), Verdict::Spare),
        (with(TAG_NODE_GROUP, "gpu"), Verdict::Spare),
        (with(TAG_ADOPTED, "true"), Verdict::Spare),
        (Leftover { description: "aws-k8s-trunk-eni".into(), ..plain.clone() }, Verdict::Spare),
        (Leftover { available: false, ..plain.clone() }, Verdict::Spare),
        (age(Some(Span::seconds(299))), Verdict::Spare),
        (age(Some(Span::seconds(300))), Verdict::Leaked),
        (age(None), Verdict::Ageless),
        (Leftover { created_unreadable: true, ..age(None) }, Verdict::Ageless),
        (Leftover { created_unreadable: true, ..plain.clone() }, Verdict::Ageless),
        (Leftover { available: false, ..age(None) }, Verdict::Spare),
    ] {
        assert_eq!(judge(&found, &ours()), wanted, "{found:?}");
    }
}

#[test]
fn a_leak_needs_two_answers_half_a_minute_apart() {
    let mut collector = LeakCollector::default();
    collector.set_elected(true, Span(0), Time(0));
    let leaked = [leftover("eni-1")];
    collector.answered(&leaked, &ours(), Time(1000), Time(1200));
    assert_eq!((collector.doomed.len(), collector.next), (0, Some(Time(31_000))));
    collector.answered(&leaked, &ours(), Time(30_999), Time(31_000));
    assert_eq!(collector.doomed.len(), 0);
    collector.answered(&leaked, &ours(), Time(31_000), Time(31_200));
    assert_eq!(collector.doomed, BTreeSet::from(["eni-1".into()]));
    assert_eq!(collector.next, Some(Time(31_200) + INTERVAL));
}

#[test]
fn an_eni_that_was_used_between_two_answers_needs_two_new_ones() {
    let mut collector = LeakCollector::default();
    collector.set_elected(true, Span(0), Time(0));
    collector.answered(&[leftover("eni-1")], &ours(), Time(1000), Time(1200));
    collector.answered(&[], &ours(), Time(40_000), Time(40_200));
    collector.answered(&[leftover("eni-1")], &ours(), Time(80_000), Time(80_200));
    assert_eq!(collector.doomed.len(), 0);
}

#[test]
fn an_eni_of_unknown_age_is_reported_once_and_kept() {
    let mut collector = LeakCollector::default();
    collector.set_elected(true, Span(0), Time(0));
    let ageless = [Leftover { age: None, created_unreadable: true, ..leftover("eni-1") }];
    let told = |collector: &mut LeakCollector, at| {
        collector.answered(&ageless, &ours(), Time(at), Time(at + 1)).len()
    };
    assert_eq!(told(&mut collector, 0), 1);
    assert_eq!(told(&mut collector, 3_600_000), 0);
    assert!(collector.doomed.is_empty() && collector.suspects.is_empty());
}

#[test]
fn a_daemon_that_loses_the_election_drops_its_plans() {
    let mut collector = LeakCollector::default();
    collector.set_elected(true, Span(0), Time(0));
    collector.answered(&[leftover("eni-1")], &ours(), Time(0), Time(1));
    collector.answered(&[leftover("eni-1")], &ours(), Time(40_000), Time(40_001));
    collector.set_elected(false, Span(0), Time(41_000));
    assert!(collector.doomed.is_empty());
    assert_eq!(collector.next, None);
    collector.set_elected(true, Span(500), Time(50_000));
    collector.set_elected(true, Span(900), Time(50_100));
    assert_eq!(collector.next, Some(Time(50_500)));
}

#[test]
fn the_collector_needs_a_cluster_name_a_node_group_and_provisioning() {
    let node = NodeFacts {
        instance_id: "i-1".into(),
        primary_eni: "eni-1".into(),
        vpc: "vpc-1".into(),
        zone: "eu-central-1a".into(),
        subnet: "subnet-1".into(),
        subnet_cidr: None,
        subnet_cidr_v6: None,
        security_groups: Vec::new(),
        description: "aws-K8S-i-1".into(),
        tags: BTreeMap::from([(TAG_NODE_GROUP.to_owned(), "default".to_owned())]),
    };
    let cluster_name = Some("blue".to_owned());
    let config = PoolConfig { collect_leaks: true, cluster_name, ..PoolConfig::default() };
    assert_eq!(signs(&config, &node), Some(ours()));
    for config in [
        PoolConfig { collect_leaks: false, ..config.clone() },
        PoolConfig { provisioning: false, ..config.clone() },
        PoolConfig { imds_only: true, ..config.clone() },
        PoolConfig { cluster_name: None, ..config.clone() },
        PoolConfig { cluster_name: Some(String::new()), ..config.clone() },
    ] {
        assert_eq!(signs(&config, &node), None);
    }
    let nameless = NodeFacts { tags: BTreeMap::new(), ..node };
    assert_eq!(signs(&config, &nameless), None);
}
