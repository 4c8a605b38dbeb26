//! What a call that waits needs from outside: questions to a person, their answers, and what it has recorded meanwhile.

mod timestamp;
mod question;
mod call_notes;
mod provider_notes;
mod decision_record;
mod ask_error;
mod asking;
mod asking_agent;
mod pending_question;
mod asker;

pub use self::ask_error::{AskError, AskErrorKind};
pub use self::asker::Asker;
pub(crate) use self::asking::Asking;
pub(crate) use self::asking_agent::AskingAgent;
pub(crate) use self::call_notes::{AgentNote, CallNotes, MAX_TEXT, Passed, QuestionReply};
pub use self::decision_record::{CallDecision, DecisionKind, DecisionRecord, WaitId};
pub use self::pending_question::PendingQuestion;
pub(crate) use self::provider_notes::ProviderNotes;
pub use self::question::Question;
pub use self::timestamp::Timestamp;
