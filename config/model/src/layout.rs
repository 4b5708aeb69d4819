//! Layouts of the host's rules for pods.

use crate::{Mark, TableId, registry};

/// Number of rules for a node's pods. Each rule adds a small cost to the route lookup of every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleLayout {
    /// Each pod has its own, as with amazon-vpc-cni: one to it, and one from it if it is not on the
    /// primary ENI.
    #[default]
    PerPod,
    /// Pods share rules. One rule selects the table of the routes to pods. Each ENI has one rule for each
    /// of its prefixes and one for packets with its netfilter mark.
    Compact,
}

impl RuleLayout {
    /// Table of the host's routes to pods.
    pub fn pod_routes(self) -> TableId {
        match self {
            Self::PerPod => TableId::MAIN,
            Self::Compact => TableId::PODS,
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::PerPod => Self::Compact,
            Self::Compact => Self::PerPod,
        }
    }
}

impl Mark {
    /// The mark of packets from single addresses of the ENI with this table; `None` if there are
    /// more tables than marks.
    pub fn of_table(table: TableId) -> Option<Self> {
        let number = table.0.checked_sub(1).filter(|number| *number > 0)?;
        let mask = registry::SOURCE_MARKS;
        let value = number.checked_shl(mask.trailing_zeros())?;
        (value & !mask == 0).then_some(Self { value, mask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_eni_of_the_first_card_has_a_mark_of_its_own_and_main_has_none() {
        let marks: Vec<u32> =
            (2..=64).map(|n| Mark::of_table(TableId(n)).expect("a mark").value).collect();
        assert!(marks.is_sorted() && marks.iter().all(|value| value & !0x3f00 == 0));
        assert_eq!((marks[0], marks[62]), (0x100, 0x3f00));
        for table in [TableId(0), TableId(1), TableId(65), TableId::MAIN, TableId(10_100)] {
            assert_eq!(Mark::of_table(table), None, "{table}");
        }
        assert_eq!(registry::SOURCE_MARKS & registry::CONNMARK.mask, 0);
    }
}
