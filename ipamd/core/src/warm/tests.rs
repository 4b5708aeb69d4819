use super::*;

const FIRST: CardIndex = CardIndex(0);

fn targets(warm: u32, minimum: u32, enis: u32) -> Targets {
    let config = PoolConfig {
        warm_eni_target: enis,
        warm_ip_target: Some(warm),
        minimum_ip_target: Some(minimum),
        ..PoolConfig::default()
    };
    Targets::new(&config, &Limits::one_card(4, 15))
}

fn pool(total: u64, held: u32, cooling: u32) -> Pool {
    Pool { total, held, cooling, ..Pool::default() }
}

fn singles_over(targets: &Targets, pool: Pool) -> u32 {
    targets.over(FIRST, pool).singles
}

#[test]
fn a_pool_at_its_minimum_is_neither_short_nor_over() {
    let targets = targets(2, 5, 0);
    let pool = pool(5, 0, 0);
    assert_eq!((targets.ask(FIRST, pool), singles_over(&targets, pool)), (0, 0));
}

#[test]
fn addresses_that_cool_are_not_available() {
    assert_eq!(targets(2, 23, 0).ask(FIRST, pool(23, 19, 4)), 2);
}

#[test]
fn waiting_reserves_and_announced_pods_are_demand() {
    let waiting = Pool { waiting: 3, ..pool(5, 5, 0) };
    assert_eq!(targets(1, 0, 0).ask(FIRST, waiting), 4);
    let expected = Pool { expected: 2, ..waiting };
    assert_eq!(targets(1, 0, 0).ask(FIRST, expected), 6);
}

#[test]
fn without_address_targets_whole_enis_are_requested_and_kept() {
    let targets = targets(0, 0, 1);
    assert_eq!([0, 1].map(|held| targets.ask(FIRST, pool(14, held, 0))), [0, 14]);
    assert_eq!(singles_over(&targets, pool(42, 0, 0)), 0);
    assert!(targets.hold_without(FIRST, pool(28, 0, 0), pool(14, 0, 0)));
    assert!(!targets.hold_without(FIRST, pool(28, 1, 0), pool(14, 0, 0)));
}

#[test]
fn with_no_warm_eni_the_pool_never_frees_its_last_address() {
    let targets = targets(0, 0, 0);
    assert_eq!([13, 14].map(|held| targets.ask(FIRST, pool(14, held, 0))), [0, 14]);
    assert!(!targets.hold_without(FIRST, pool(28, 14, 0), pool(14, 0, 0)));
    assert!(targets.hold_without(FIRST, pool(28, 13, 0), pool(14, 0, 0)));
}

#[test]
fn a_pool_of_max_pods_grows_only_for_pods_that_wait_while_addresses_cool() {
    let targets = targets(5, 0, 0);
    assert_eq!(targets.ask(FIRST, pool(110, 108, 0)), 0);
    let rolling = Pool { waiting: 2, ..pool(110, 100, 10) };
    assert_eq!(targets.ask(FIRST, rolling), 2);
    let beyond = Pool { waiting: 2, ..pool(110, 110, 0) };
    assert_eq!(targets.ask(FIRST, beyond), 0);
}

#[test]
fn over_keeps_the_warm_and_the_minimum() {
    assert_eq!(singles_over(&targets(2, 5, 0), pool(12, 4, 1)), 5);
    assert_eq!(singles_over(&targets(2, 10, 0), pool(12, 4, 1)), 2);
    assert_eq!(singles_over(&targets(2, 0, 0), pool(12, 4, 8)), 0);
}

fn prefixes(config: PoolConfig) -> Targets {
    Targets::new(&PoolConfig { prefixes: true, ..config }, &Limits::one_card(3, 4))
}

fn warm_prefixes(warm: u32) -> Targets {
    prefixes(PoolConfig { warm_prefix_target: Some(warm), ..PoolConfig::default() })
}

/// Pools of prefixes, at most one of them idle by default.
fn prefix_pool(prefixes: u64, idle: u32, held: u32) -> Pool {
    Pool { idle_prefixes: idle, ..pool(16 * prefixes, held, 0) }
}

#[test]
fn a_warm_prefix_is_sixteen_free_addresses_of_any_blocks() {
    let targets = warm_prefixes(1);
    let ask = |prefixes, idle, held| {
        Unit::Prefix.blocks(targets.ask(FIRST, prefix_pool(prefixes, idle, held)))
    };
    assert_eq!([ask(0, 0, 0), ask(1, 1, 0), ask(1, 0, 1), ask(2, 1, 16)], [1, 0, 1, 0]);
    assert_eq!([ask(2, 0, 17), ask(4, 0, 58), ask(5, 0, 58)], [1, 1, 0]);
}

#[test]
fn cooling_addresses_cause_no_request_for_a_prefix() {
    let ask =
        |held, cooling| warm_prefixes(1).ask(FIRST, Pool { cooling, ..prefix_pool(5, 0, held) });
    assert_eq!([ask(60, 0), ask(60, 5), ask(60, 12)], [0; 3]);
    // More than half of the warm prefix cools or is assigned.
    assert_eq!([ask(60, 13), ask(65, 0), ask(65, 5)], [9, 1, 6]);
    let waiting = Pool { waiting: 25, cooling: 5, ..prefix_pool(5, 0, 60) };
    assert_eq!(warm_prefixes(1).ask(FIRST, waiting), 26);
}

#[test]
fn cooling_addresses_cause_no_request_for_an_eni() {
    let ask = |held, cooling| targets(0, 0, 1).ask(FIRST, pool(28, held, cooling));
    assert_eq!([ask(14, 0), ask(14, 7), ask(14, 8), ask(15, 0)], [0, 0, 14, 14]);
    // For the same reason none is freed.
    let last = targets(0, 0, 1);
    assert!(!last.hold_without(FIRST, pool(42, 14, 1), pool(14, 0, 0)));
    assert!(last.hold_without(FIRST, pool(42, 14, 0), pool(14, 0, 0)));
}

#[test]
fn prefixes_are_returned_only_above_the_target() {
    let over = |warm, prefixes, idle, held| {
        warm_prefixes(warm).over(FIRST, prefix_pool(prefixes, idle, held)).prefixes
    };
    assert_eq!([over(1, 3, 2, 5), over(1, 2, 1, 5), over(1, 3, 3, 0)], [1, 0, 2]);
    // Without a target the last free address stays; otherwise it would be requested again.
    assert_eq!([over(0, 2, 1, 16), over(0, 2, 1, 15), over(0, 1, 1, 0)], [0, 1, 0]);
}

#[test]
fn address_targets_are_rounded_up_to_prefixes_and_bound_returns() {
    let config = PoolConfig {
        warm_ip_target: Some(7),
        minimum_ip_target: Some(20),
        ..PoolConfig::default()
    };
    let targets = prefixes(config);
    let ask =
        |prefixes, held| Unit::Prefix.blocks(targets.ask(FIRST, prefix_pool(prefixes, 0, held)));
    assert_eq!([ask(0, 0), ask(1, 5), ask(2, 5), ask(2, 26), ask(4, 58)], [2, 1, 0, 1, 1]);
    let over =
        |prefixes, idle, held| targets.over(FIRST, prefix_pool(prefixes, idle, held)).prefixes;
    assert_eq!([over(2, 2, 0), over(3, 3, 0), over(3, 2, 10), over(4, 3, 10)], [0, 1, 1, 2]);
}

#[test]
fn blocks_of_the_other_kind_are_replaced_and_then_returned() {
    let targets = warm_prefixes(1);
    let singles = Pool { stale: 3, idle_singles: 3, ..pool(3, 0, 0) };
    assert_eq!(targets.ask(FIRST, singles), 16);
    let replaced = Pool { total: 19, idle_prefixes: 1, ..singles };
    assert_eq!(targets.ask(FIRST, replaced), 0);
    assert_eq!(targets.over(FIRST, replaced), Surplus { singles: 3, prefixes: 0 });
}

#[test]
fn one_ipv6_prefix_is_enough_for_ever() {
    let config =
        PoolConfig { family: Family::V6, warm_ip_target: Some(9), ..PoolConfig::default() };
    let targets = Targets::new(&config, &Limits::one_card(3, 4));
    assert_eq!(targets.unit().want(1), Want::Ipv6Prefixes(1));
    assert_eq!(targets.ask(FIRST, Pool::default()), 1);
    let stuck = Pool { stuck: 1 << 48, ..pool(1 << 48, 0, 0) };
    assert_eq!(targets.ask(FIRST, stuck), 1);
    let one = pool(1 << 48, 200, 0);
    assert_eq!((targets.ask(FIRST, one), targets.over(FIRST, one)), (0, Surplus::default()));
    assert!(!targets.hold_without(FIRST, one, pool(1 << 48, 0, 0)));
    let two = pool(2 << 48, 200, 0);
    assert!(targets.hold_without(FIRST, two, pool(1 << 48, 0, 0)));
}

#[test]
fn other_cards_keep_one_address_each_and_only_with_multi_nic() {
    let mut limits = Limits::one_card(3, 4);
    limits.cards.push(crate::CardLimits { card: CardIndex(1), enis: 2 });
    let alone = Targets::new(&PoolConfig::default(), &limits);
    assert_eq!(alone.cards(), [FIRST]);
    let both = Targets::new(&PoolConfig { multi_nic: true, ..PoolConfig::default() }, &limits);
    assert_eq!(both.cards(), [FIRST, CardIndex(1)]);
    assert_eq!(both.ask(CardIndex(1), pool(0, 0, 0)), 1);
    assert_eq!(both.ask(CardIndex(1), pool(3, 3, 0)), 1);
    assert_eq!(both.over(CardIndex(1), pool(3, 1, 0)).singles, 1);
}
