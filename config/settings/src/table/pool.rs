//! Settings about the pool: the number and the shape of the addresses to keep ready.

use super::{AMAZON, Kind, OnBad, Setting};
use crate::parse;
use config_model::Span;

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "WARM_ENI_TARGET",
        kind: Kind::Int("0 or more"),
        default: "1",
        unit: "ENIs",
        meaning: "Free addresses to keep ready, counted in whole ENIs. Ignored if `WARM_IP_TARGET` \
                  or `MINIMUM_IP_TARGET` is above 0, with `ENABLE_PREFIX_DELEGATION`, and with \
                  `ENABLE_IPv6`.",
        set: |d, v| parse::count(v).map(|n| d.settings.warm.enis = n),
        ..AMAZON
    },
    Setting {
        name: "WARM_IP_TARGET",
        kind: Kind::Int("0 or more"),
        default: "0",
        unit: "addresses",
        meaning: "Free addresses to keep ready; 0 is off. Takes precedence over `WARM_ENI_TARGET`.",
        set: |d, v| parse::count(v).map(|n| d.settings.warm.ips = n),
        ..AMAZON
    },
    Setting {
        name: "MINIMUM_IP_TARGET",
        kind: Kind::Int("0 or more"),
        default: "0",
        unit: "addresses",
        since: "1.6",
        meaning: "The minimum of all addresses; 0 is off. Takes precedence over `WARM_ENI_TARGET`.",
        set: |d, v| parse::count(v).map(|n| d.settings.warm.minimum = n),
        ..AMAZON
    },
    Setting {
        name: "WARM_PREFIX_TARGET",
        kind: Kind::Int("0 or more"),
        default: "1",
        unit: "prefixes",
        since: "1.9",
        meaning: "Free prefixes to keep ready, only with `ENABLE_PREFIX_DELEGATION`. Ignored if \
                  `WARM_IP_TARGET` or `MINIMUM_IP_TARGET` is above 0.",
        set: |d, v| parse::count(v).map(|n| d.settings.warm.prefixes = n),
        ..AMAZON
    },
    Setting {
        name: "MAX_ENI",
        kind: Kind::Int("any"),
        default: "-1",
        unit: "ENIs",
        meaning: "The limit of ENIs, including the primary one. Used if it is at least 1 and below \
                  the limit of the instance type.",
        set: |d, v| {
            let most = parse::integer(v)?;
            d.settings.max_enis = u32::try_from(most).ok().filter(|most| *most > 0);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "IP_COOLDOWN_PERIOD",
        kind: Kind::Int("0 or more"),
        default: "30",
        unit: "seconds",
        since: "1.15",
        meaning: "The time for which a released address is not reused. An invalid value is \
                  refused.",
        on_bad: OnBad::Refuse,
        set: |d, v| parse::count(v).map(|n| d.settings.cooldown = Span::seconds(n.into())),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_PREFIX_DELEGATION",
        kind: Kind::Bool,
        default: "false",
        since: "1.9",
        meaning: "The daemon assigns prefixes of 16 addresses, or single addresses if the subnet \
                  is too fragmented. On an instance type without prefixes IPv4 uses single \
                  addresses, and IPv6 is not possible.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.prefixes = b),
        ..AMAZON
    },
];
