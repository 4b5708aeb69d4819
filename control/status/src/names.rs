//! Nodes by number.

use crate::bits::Bits;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: BTreeMap<String, u32>,
    names: Vec<String>,
    free: Vec<u32>,
}

impl Names {
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = match self.free.pop() {
            Some(number) => {
                name.clone_into(&mut self.names[number as usize]);
                number
            }
            None => {
                self.names.push(name.to_owned());
                // Nodes of one cluster are far fewer.
                u32::try_from(self.names.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.numbers.insert(name.to_owned(), number);
        number
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// Frees the numbers of other nodes for reuse.
    pub(crate) fn keep(&mut self, used: &Bits) {
        let Self { numbers, free, .. } = self;
        numbers.retain(|_, number| {
            let stays = used.has(*number);
            if !stays {
                free.push(*number);
            }
            stays
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}
