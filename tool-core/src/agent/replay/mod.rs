//! What stands in for others while a run is repeated from its record, by the present program: the rules, limits and layers are asked again, and
//! nobody else is.
//!
//! All rules are the driver's. A record stands in for the world in four places: for the model (`driver/model_request`), for tools and the
//! wrappers of agents (`executor`), and for what an agent is asked inside (`driver/agent_call`) or hands over to (`handoff`). Everything
//! else that a run would ask is missing from the copies of the agents (`repeating`). `repeat` drives.

mod parts;
mod record;
mod stand_in;

pub use self::parts::ReplayParts;
pub(super) use self::record::Record;
pub use self::record::{is_said_instead, is_unrecorded};
pub(super) use self::stand_in::{
    NO_SETUP, NoSetup, Provided, RecordEnds, RecordedModel, StandIn, StopsHere, without_clock,
};
