//! The source ports of Services among the node's reserved ports.
//!
//! The kernel gives no reserved port to a process that asks for any port. A process can still bind one by its number.

use std::{fmt, ops::RangeInclusive, str::FromStr};

/// Ports, as ascending ranges without common or adjacent ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSet(Vec<(u16, u16)>);

/// A part of a list that is neither a port nor an ascending range of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPorts(pub String);

impl fmt::Display for BadPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is neither a port nor a range of ports", self.0)
    }
}

impl std::error::Error for BadPorts {}

impl PortSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of ports.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(first, last)| usize::from(last - first) + 1).sum()
    }

    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|(first, last)| (first..=last).contains(&&port))
    }

    /// The ports of at least one of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// The ports without those of `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for (first, last) in self.0.iter().copied() {
            // The first port that is not decided yet; `None` after the last port of all.
            let mut next = Some(first);
            for (from, to) in other.0.iter().copied() {
                let Some(at) = next.filter(|at| *at <= to && from <= last) else { continue };
                let before = from.checked_sub(1).filter(|before| *before >= at);
                left.extend(before.map(|before| (at, before)));
                next = to.checked_add(1);
            }
            left.extend(next.filter(|at| *at <= last).map(|at| (at, last)));
        }
        Self(left)
    }

    /// The ports of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }

    /// Parses `net.ipv4.ip_local_port_range`: the first and the last port.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn of_local_range(text: &str) -> Result<Self, BadPorts> {
        let mut words = text.split_whitespace().map(str::parse::<u16>);
        match (words.next(), words.next(), words.next()) {
            (Some(Ok(first)), Some(Ok(last)), None) if first <= last => Ok((first..=last).into()),
            _ => Err(BadPorts(text.trim().to_owned())),
        }
    }

    fn of(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }
}

impl From<RangeInclusive<u16>> for PortSet {
    fn from(range: RangeInclusive<u16>) -> Self {
        if range.is_empty() { Self::default() } else { Self(vec![range.into_inner()]) }
    }
}

/// A list as the kernel has it, such as `8080,9000-9010`. Text without a part is the empty set.
impl FromStr for PortSet {
    type Err = BadPorts;

    fn from_str(text: &str) -> Result<Self, BadPorts> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let ranges = text.split(',').map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<u16>(), last.parse::<u16>()) {
                (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
                _ => Err(BadPorts(part.to_owned())),
            }
        });
        ranges.collect::<Result<_, _>>().map(Self::of)
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

/// The next step for the node's reserved ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// All wanted ports are reserved.
    Complete,
    /// The value to write, and the ports that it adds.
    Write { value: PortSet, added: PortSet },
    /// Processes that ask for any port would get none: each of these ports would be reserved.
    NoLocalPort { local: PortSet },
}

/// Plans the reservation of ports. `local` is the range from which the kernel gives ports to processes.
pub fn plan_reservation(wanted: &PortSet, reserved: &PortSet, local: &PortSet) -> Reservation {
    let added = wanted.without(reserved);
    if added.is_empty() {
        return Reservation::Complete;
    }
    let value = reserved.union(wanted);
    if local.without(&value).is_empty() {
        return Reservation::NoLocalPort { local: local.clone() };
    }
    Reservation::Write { value, added }
}

/// The ports that the agent has added since a boot of the node. A boot removes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedPorts {
    /// The kernel's identifier of the boot.
    pub boot: String,
    pub ports: PortSet,
}

impl AddedPorts {
    /// The reserved ports without those that the agent has added. `None` if the node has none of them.
    pub fn release(&self, boot: &str, reserved: &PortSet) -> Option<PortSet> {
        let is_of_boot = self.boot == boot && !self.ports.intersection(reserved).is_empty();
        is_of_boot.then(|| reserved.without(&self.ports))
    }

    /// The record after a write that adds ports.
    #[must_use]
    pub fn after(earlier: Option<&Self>, boot: &str, added: &PortSet) -> Self {
        let earlier = earlier.filter(|of| of.boot == boot);
        let ports = earlier.map_or_else(|| added.clone(), |of| of.ports.union(added));
        Self { boot: boot.to_owned(), ports }
    }
}

/// One line: the boot, a space, the ports.
impl FromStr for AddedPorts {
    type Err = BadPorts;

    fn from_str(text: &str) -> Result<Self, BadPorts> {
        match text.trim_end().split_once(' ') {
            Some((boot, ports)) => Ok(Self { boot: boot.to_owned(), ports: ports.parse()? }),
            None => Err(BadPorts(text.to_owned())),
        }
    }
}

impl fmt::Display for AddedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.boot, self.ports)
    }
}

#[cfg(test)]
mod tests;
