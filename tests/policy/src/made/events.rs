//! What happens to a world.

use super::{
    Made, id, object,
    objects::{service, tier},
    show::shorten,
};
use crate::lived::Lived;
use policy_objects::Object;
use proptest::{collection::vec, prelude::*, sample::Index};
use std::fmt;

/// An object comes or changes, or one goes.
#[derive(Clone)]
pub enum Event {
    /// This one comes or changes.
    Insert(Box<Object>),
    /// The one of this number goes.
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

/// Services and tiers that come, change and go.
pub fn turns() -> impl Strategy<Value = Vec<Event>> {
    let object = prop_oneof![2 => service(), 1 => tier()];
    let event = prop_oneof![
        4 => object.prop_map(|object| Event::Insert(Box::new(object))),
        1 => any::<Index>().prop_map(Event::Remove),
    ];
    vec(event, 1..6)
}

impl Event {
    /// What it is, for people.
    pub fn told(&self, made: &Made) -> String {
        match self {
            Self::Insert(_) => format!("{self:?}"),
            Self::Remove(_) if made.objects.is_empty() => "nothing".to_owned(),
            Self::Remove(which) => format!("the end of {:?}", id(which.get(&made.objects))),
        }
    }

    /// It happens.
    pub fn befall(self, lived: &mut Lived) {
        match self {
            Self::Insert(object) => drop(lived.insert(*object)),
            Self::Remove(_) if lived.made.objects.is_empty() => {}
            Self::Remove(which) => {
                let gone = id(which.get(&lived.made.objects));
                lived.remove(&gone);
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
