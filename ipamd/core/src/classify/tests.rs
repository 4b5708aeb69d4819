use super::*;
use crate::{AttachmentState, SeenAttachment};
use config_model::{DeviceIndex, Mac};

fn node() -> NodeFacts {
    NodeFacts {
        instance_id: "i-1".into(),
        primary_eni: "eni-primary".into(),
        vpc: "vpc-1".into(),
        zone: "eu-central-1a".into(),
        subnet: "subnet-1".into(),
        subnet_cidr: None,
        subnet_cidr_v6: None,
        security_groups: Vec::new(),
        description: "aws-K8S-i-1".into(),
        tags: tags(&[(TAG_INSTANCE, "i-1"), ("team", "blue")]),
    }
}

fn tags(tags: &[(&str, &str)]) -> BTreeMap<String, String> {
    tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn eni(id: &str, kind: EniKind, of: &[(&str, &str)]) -> SeenEni {
    SeenEni {
        id: id.into(),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        subnet: "subnet-1".into(),
        subnet_cidr: None,
        subnet_cidr_v6: None,
        primary_address: None,
        ipv6_addresses: Vec::new(),
        blocks: Vec::new(),
        attachment: Some(SeenAttachment {
            id: None,
            instance: "i-1".into(),
            card: CardIndex(0),
            device: DeviceIndex(1),
            state: AttachmentState::Attached,
            delete_on_termination: Some(true),
        }),
        kind: Some(kind),
        groups: None,
        tags: Some(tags(of)),
    }
}

fn of(config: &PoolConfig, seen: &SeenEni) -> Class {
    classify(config, &node(), seen, CardIndex(0), false)
}

const MINE: (&str, &str) = (TAG_INSTANCE, "i-1");

#[test]
fn tags_determine_the_manager_of_an_eni() {
    let strict = PoolConfig { manage_untagged: false, ..PoolConfig::default() };
    let lenient = PoolConfig { manage_untagged: true, ..PoolConfig::default() };
    for (tags, managed_if_strict, managed_if_lenient, ours) in [
        (&[][..], false, true, false),
        (&[(TAG_NO_MANAGE, "true")], false, false, false),
        (&[(TAG_NO_MANAGE, "true"), MINE], false, false, false),
        (&[(TAG_NO_MANAGE, "false")], true, true, false),
        (&[(TAG_NO_MANAGE, "")], true, true, false),
        (&[MINE], true, true, true),
        (&[(TAG_INSTANCE, "i-2")], false, true, false),
        (&[MINE, (TAG_ADOPTED, "true")], false, true, false),
    ] {
        let seen = eni("eni-2", EniKind::Standard, tags);
        for (config, managed) in [(&strict, managed_if_strict), (&lenient, managed_if_lenient)] {
            let class = of(config, &seen);
            assert_eq!((class.managed, class.pods), (managed, managed), "{tags:?}");
            assert_eq!(class.ours, ours, "{tags:?}");
        }
    }
}

#[test]
fn the_next_process_distinguishes_adopted_enis_from_created_ones() {
    let strict = PoolConfig { manage_untagged: true, ..PoolConfig::default() };
    let mut seen = eni("eni-2", EniKind::Standard, &[]);
    assert!(of(&strict, &seen).untagged);
    seen.tags = Some(tags_to_add(&node(), true));
    let class = of(&strict, &seen);
    assert_eq!((class.managed, class.ours, class.untagged), (true, false, false));
}

#[test]
fn each_kind_has_its_use() {
    let config = PoolConfig::default();
    for (kind, pods, ours) in [
        (EniKind::Standard, true, true),
        (EniKind::Efa, true, false),
        (EniKind::EfaOnly, false, false),
        (EniKind::Trunk, false, false),
        (EniKind::Branch, false, false),
        (EniKind::Other, false, false),
    ] {
        let class = of(&config, &eni("eni-2", kind, &[MINE]));
        assert_eq!((class.kind, class.pods, class.ours), (kind, pods, ours));
    }
}

#[test]
fn the_primary_eni_is_always_managed_never_freed_and_idle_under_custom_networking() {
    let primary = eni("eni-primary", EniKind::Standard, &[MINE, (TAG_NO_MANAGE, "true")]);
    let strict = PoolConfig { manage_untagged: false, ..PoolConfig::default() };
    let class = of(&strict, &primary);
    assert_eq!((class.managed, class.pods, class.ours), (true, true, false));
    let custom = PoolConfig { custom_networking: true, ..strict };
    let class = of(&custom, &primary);
    assert_eq!((class.managed, class.pods, class.ours), (true, false, false));
    assert!(of(&custom, &eni("eni-2", EniKind::Standard, &[MINE])).pods);
}

#[test]
fn missing_tags_are_reported_only_for_used_enis_with_visible_tags() {
    let config = PoolConfig::default();
    assert!(of(&config, &eni("eni-2", EniKind::Standard, &[MINE])).untagged);
    assert!(of(&config, &eni("eni-2", EniKind::Standard, &[MINE, ("team", "red")])).untagged);
    assert!(!of(&config, &eni("eni-2", EniKind::Standard, &[MINE, ("team", "blue")])).untagged);
    assert!(!of(&config, &eni("eni-2", EniKind::Trunk, &[MINE])).untagged);
    assert!(!of(&config, &eni("eni-2", EniKind::Standard, &[(TAG_NO_MANAGE, "true")])).untagged);
    let by_imds = SeenEni { tags: None, ..eni("eni-2", EniKind::Standard, &[]) };
    assert!(!of(&config, &by_imds).untagged);
}

#[test]
fn other_cards_count_with_multi_nic_alone() {
    let seen = eni("eni-2", EniKind::Standard, &[MINE]);
    for (multi_nic, managed) in [(false, false), (true, true)] {
        let config = PoolConfig { multi_nic, ..PoolConfig::default() };
        assert_eq!(classify(&config, &node(), &seen, CardIndex(1), false).managed, managed);
    }
}

#[test]
fn a_card_of_efa_only_enis_is_left_to_them() {
    let (theirs, ours) = ((EniKind::EfaOnly, false), (EniKind::Standard, true));
    let in_use = |card, enis: &[(EniKind, bool)]| is_card_in_use(CardIndex(card), enis);
    assert!(in_use(0, &[theirs]));
    assert!(!in_use(1, &[theirs]));
    assert!(!in_use(1, &[theirs, (EniKind::Standard, false)]));
    assert!(in_use(1, &[theirs, ours]));
    assert!(in_use(1, &[]));
}
