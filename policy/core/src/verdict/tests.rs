//! Each paragraph of the model, and the corner cases of the kinds, in small worlds.

mod antrea;
mod cluster;
mod exempt;
mod network;
mod order;

use super::*;
use crate::{Origin, Segment, State, stage::*};
use policy_objects::*;
