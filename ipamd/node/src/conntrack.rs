//! The settings of connection tracking that kube-proxy makes at its start, for nodes whose Services the agent serves.
//!
//! The values are the defaults of kube-proxy 1.36 (`pkg/proxy/apis/config/v1alpha1/defaults.go` and
//! `pkg/proxy/conntrack/sysctls.go`). A limit is only raised. A timeout is only changed if it is the default of the kernel.
//! So a higher limit and another timeout stay, whether an operator or a running kube-proxy has set them.

use routing_plan::SysctlName;
use std::collections::BTreeMap;

const MAX: &str = "net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "net/netfilter/nf_conntrack_buckets";
const ESTABLISHED: &str = "net/netfilter/nf_conntrack_tcp_timeout_established";
const CLOSE_WAIT: &str = "net/netfilter/nf_conntrack_tcp_timeout_close_wait";

const PER_CPU: u64 = 32_768;
const LEAST: u64 = 131_072;
const MOST: u64 = 1_048_576;
const PER_BUCKET: u64 = 4;
/// Timeouts in seconds: the kernel's default, and that of kube-proxy.
const TIMEOUTS: [(&str, u64, u64); 2] = [(ESTABLISHED, 432_000, 86_400), (CLOSE_WAIT, 60, 3_600)];

/// The settings that [`plan`] needs. A setting does not exist while the kernel tracks no connections.
pub fn names() -> impl Iterator<Item = SysctlName> {
    [MAX, BUCKETS, ESTABLISHED, CLOSE_WAIT].into_iter().filter_map(SysctlName::new)
}

/// Returns the settings to change, in order.
pub fn plan(cpus: u64, observed: &BTreeMap<SysctlName, String>) -> Vec<(SysctlName, String)> {
    let max = (cpus * PER_CPU).clamp(LEAST, MOST);
    let mut changes = Vec::new();
    let mut change = |name: &str, wants: &dyn Fn(u64) -> Option<u64>| {
        let Some(name) = SysctlName::new(name) else { return };
        let value = observed.get(&name).and_then(|text| text.trim().parse().ok());
        if let Some(wanted) = value.and_then(wants) {
            changes.push((name, wanted.to_string()));
        }
    };
    // Zero means no limit.
    change(MAX, &|now| (now != 0 && now < max).then_some(max));
    change(BUCKETS, &|now| (now < max / PER_BUCKET).then_some(max / PER_BUCKET));
    for (name, of_kernel, wanted) in TIMEOUTS {
        change(name, &|now| (now == of_kernel).then_some(wanted));
    }
    changes
}

/// Returns the number of processors in a list such as `0-3,8`; `None` if it is no such list.
pub fn cpus(list: &str) -> Option<u64> {
    let count = |range: &str| -> Option<u64> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').map(count).sum()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    type Observed = BTreeMap<SysctlName, String>;

    fn observed(values: &[(&str, u64)]) -> Observed {
        let pair =
            |(name, value): &(&str, u64)| (SysctlName::new(*name).unwrap(), format!("{value}\n"));
        values.iter().map(pair).collect()
    }

    /// Applies the plan, and returns the changed settings.
    fn apply(cpus: u64, seen: &mut Observed) -> Vec<(String, String)> {
        let changes = plan(cpus, seen);
        seen.extend(changes.clone());
        assert_eq!(plan(cpus, seen), [], "it rests");
        changes.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    #[test]
    fn a_node_as_the_kernel_starts_it_gets_the_values_of_kube_proxy() {
        let of_kernel =
            [(MAX, 65_536), (BUCKETS, 16_384), (ESTABLISHED, 432_000), (CLOSE_WAIT, 60)];
        for (cpus, max) in [(1, "131072"), (4, "131072"), (8, "262144"), (192, "1048576")] {
            let mut seen = observed(&of_kernel);
            let changed = apply(cpus, &mut seen);
            let buckets = (max.parse::<u64>().unwrap() / 4).to_string();
            let expected = [
                (MAX, max),
                (BUCKETS, buckets.as_str()),
                (ESTABLISHED, "86400"),
                (CLOSE_WAIT, "3600"),
            ];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(changed, expected, "{cpus} processors");
        }
    }

    #[test]
    fn a_value_of_an_operator_stays() {
        let values =
            [(MAX, 2_000_000), (BUCKETS, 500_000), (ESTABLISHED, 7_200), (CLOSE_WAIT, 120)];
        assert_eq!(apply(4, &mut observed(&values)), []);
        assert_eq!(apply(4, &mut observed(&[(MAX, 0), (BUCKETS, 65_536)])), []);
    }

    #[test]
    fn a_setting_that_the_kernel_lacks_or_that_is_no_number_stays() {
        assert_eq!(plan(4, &Observed::new()), []);
        let mut seen = observed(&[(MAX, 65_536)]);
        seen.insert(SysctlName::new(BUCKETS).unwrap(), "none".to_owned());
        assert_eq!(apply(4, &mut seen), [(MAX.to_owned(), "131072".to_owned())]);
        assert_eq!(names().count(), 4);
    }

    #[test]
    fn processors_are_counted_in_ranges() {
        assert_eq!(cpus("0-3\n"), Some(4));
        assert_eq!(cpus("0"), Some(1));
        assert_eq!(cpus("0-3,8,10-11"), Some(7));
        for odd in ["", "x", "3-1", "0-"] {
            assert_eq!(cpus(odd), None, "{odd:?}");
        }
    }
}
