//! The documented examples of amazon-vpc-cni's targets, which the rival must reproduce.

use super::Rival;
use crate::pool::{arena::Arena, setting::PoolSetting, trace::Trace};
use config_model::Time;

/// The attached ENIs at the end: the number of addresses or prefixes of each besides its primary address,
/// largest first.
fn settled(kind: &'static str, setting: PoolSetting, pods: u64) -> Vec<usize> {
    let trace = Trace::one_by_one(kind, 110, pods);
    let mut splits: Vec<Vec<usize>> = (1..=3).map(|seed| split(&trace, setting, seed)).collect();
    splits.dedup();
    assert_eq!(splits.len(), 1, "chance decides: {splits:?}");
    splits.remove(0)
}

fn split(trace: &Trace, setting: PoolSetting, seed: u64) -> Vec<usize> {
    let arena = Arena::new(trace, seed, |node, seed| Box::new(Rival::new(setting, node, seed)));
    let (tally, mut cloud, instances) = arena.expect("a cloud for the trace").run();
    assert_eq!(tally.unserved, 0);
    let enis = cloud.enis_of(Time(u64::MAX / 2), &instances[0]);
    let count = |eni: &lab_cloud::NetworkInterface| {
        eni.secondary_addresses().count() + eni.ipv4_prefixes.len()
    };
    let mut split: Vec<usize> = enis.iter().map(|eni| count(eni)).collect();
    split.sort_by(|a, b| b.cmp(a));
    split
}

fn enis() -> PoolSetting {
    PoolSetting::defaults(false)
}

fn addresses(warm: u32, minimum: u32) -> PoolSetting {
    PoolSetting::addresses(false, warm, minimum)
}

fn prefixes(warm: u32, minimum: u32) -> PoolSetting {
    PoolSetting::addresses(true, warm, minimum)
}

#[test]
fn t3_small_with_one_warm_eni() {
    let split = |pods| settled("t3.small", enis(), pods);
    assert_eq!((split(0), split(5), split(9)), (vec![3], vec![3, 3, 3], vec![3, 3, 3]));
}

#[test]
fn t3_small_with_one_warm_address_and_a_minimum_of_one() {
    let split = |pods| settled("t3.small", addresses(1, 1), pods);
    assert_eq!((split(0), split(5), split(9)), (vec![1], vec![3, 3], vec![3, 3, 3]));
}

#[test]
fn t3_small_with_two_warm_addresses_and_a_minimum_of_five() {
    let split = |pods| settled("t3.small", addresses(2, 5), pods);
    assert_eq!((split(0), split(5), split(9)), (vec![3, 2], vec![3, 3, 1], vec![3, 3, 3]));
}

#[test]
fn p3dn_24xlarge_with_one_warm_eni() {
    let split = |pods| settled("p3dn.24xlarge", enis(), pods);
    assert_eq!((split(0), split(3), split(95)), (vec![49], vec![49, 49], vec![49, 49, 49]));
}

#[test]
fn p3dn_24xlarge_with_five_warm_addresses_and_a_minimum_of_ten() {
    let split = |pods| settled("p3dn.24xlarge", addresses(5, 10), pods);
    assert_eq!((split(0), split(7)), (vec![10], vec![12]));
    assert_eq!((split(15), split(45)), (vec![20], vec![49, 1]));
}

#[test]
fn t3_small_with_one_warm_prefix() {
    let split = |pods| settled("t3.small", PoolSetting::defaults(true), pods);
    assert_eq!((split(0), split(5), split(16)), (vec![1], vec![2], vec![2]));
    assert_eq!((split(17), split(58)), (vec![3], vec![3, 2]));
}

#[test]
fn t3_small_with_prefixes_for_one_warm_address_and_a_minimum_of_one() {
    let split = |pods| settled("t3.small", prefixes(1, 1), pods);
    assert_eq!((split(0), split(5)), (vec![1], vec![1]));
    assert_eq!((split(17), split(58)), (vec![2], vec![3, 1]));
}

/// The published row for no pods has one prefix; by the algorithm, a minimum of 20 needs two.
#[test]
fn t3_small_with_prefixes_for_seven_warm_addresses_and_a_minimum_of_twenty() {
    let split = |pods| settled("t3.small", prefixes(7, 20), pods);
    assert_eq!((split(0), split(5)), (vec![2], vec![2]));
    assert_eq!((split(17), split(58)), (vec![2], vec![3, 2]));
}

/// The published rows spread the prefixes over several ENIs, as an older version did; by the algorithm one
/// ENI is enough. The numbers of prefixes agree.
#[test]
fn p3dn_24xlarge_with_prefixes_for_five_warm_addresses_and_a_minimum_of_ten() {
    let split = |pods| settled("p3dn.24xlarge", prefixes(5, 10), pods);
    assert_eq!((split(0), split(7)), (vec![1], vec![1]));
    assert_eq!((split(15), split(45)), (vec![2], vec![4]));
}
