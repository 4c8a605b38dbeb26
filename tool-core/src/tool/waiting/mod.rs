//! What a call that waits needs from outside: questions to a person, their answers, and what it has recorded meanwhile.

mod timestamp;
mod question;
mod call_notes;
mod decision_record;
mod asker;

pub(crate) use self::asker::Asking;
pub use self::asker::{AskError, AskErrorKind, AskQuestion, Asker};
pub(crate) use self::call_notes::{CallNotes, MAX_TEXT, Reply};
pub use self::decision_record::{DecisionKind, DecisionRecord, WaitId};
pub use self::question::Question;
pub use self::timestamp::Timestamp;
