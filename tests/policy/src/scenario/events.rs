//! Changes of a world.

use super::{
    Scenario, id, object,
    objects::{service, tier},
    show::shorten,
};
use crate::live::LiveWorld;
use policy_objects::Object;
use proptest::{collection::vec, prelude::*, sample::Index};
use std::fmt;

#[derive(Clone)]
pub enum Event {
    /// Adds or replaces an object.
    Insert(Box<Object>),
    /// Removes the object at this index.
    Remove(Index),
}

/// A few events.
pub fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => object().prop_map(|object| Event::Insert(Box::new(object))),
        2 => any::<Index>().prop_map(Event::Remove),
    ];
    vec(event, 1..10)
}

/// Services and tiers that are added, changed and removed.
pub fn service_events() -> impl Strategy<Value = Vec<Event>> {
    let object = prop_oneof![2 => service(), 1 => tier()];
    let event = prop_oneof![
        4 => object.prop_map(|object| Event::Insert(Box::new(object))),
        1 => any::<Index>().prop_map(Event::Remove),
    ];
    vec(event, 1..6)
}

impl Event {
    /// Describes the event for a failure message.
    pub fn describe(&self, scenario: &Scenario) -> String {
        match self {
            Self::Insert(_) => format!("{self:?}"),
            Self::Remove(_) if scenario.objects.is_empty() => "nothing".to_owned(),
            Self::Remove(which) => format!("the end of {:?}", id(which.get(&scenario.objects))),
        }
    }

    /// Applies the event.
    pub fn apply(self, live: &mut LiveWorld) {
        match self {
            Self::Insert(object) => drop(live.insert(*object)),
            Self::Remove(_) if live.scenario.objects.is_empty() => {}
            Self::Remove(which) => {
                let gone = id(which.get(&live.scenario.objects));
                live.remove(&gone);
            }
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert(object) => write!(f, "insert {}", shorten(format!("{object:?}"))),
            Self::Remove(which) => write!(f, "remove {}", which.index(1 << 16)),
        }
    }
}
