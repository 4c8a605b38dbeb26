//! The loop between a model and its tools as a state machine: all of its rules, no I/O and no clock.
//!
//! `state` has the data of a [`Run`] and of its calls, and `access` reads it. `log` records what happens and alone changes the `history` and
//! the outcomes of calls; `changes` is what a save writes. Copies of a run and what layers see of it (`view`) share the history
//! (`shared_vec`). `turn` has the calls of one reply, and `call` the transitions of one call. `transitions` decides the next step of a run
//! and records its outcome; `normalize` corrects the calls of a reply, and `call_ids` their ids.
//!
//! `check_limits`, `ledger` (what it costs), `inner` (the runs of agents as tools), `hand_off`, `opening` (what the application gave),
//! `repeated_calls` (counted by `request_counts`), `undo`, `user_message`, `approve`, `resolve`, `provider_questions`, `room` (what may start),
//! `visible` (what the model sees), `fork` and `finish` each have one further rule. `review` records what layers decide. `profile` is what
//! rules need of the agent, and `engine` decides what a world does next for a tree of runs (`effect`). `remote` is for drivers that execute
//! calls in other processes. `saved` and `saved_execution` are the stored form.

// `Run` has no I/O and no clock, because it must be serializable between any two steps and testable in every order.

mod id;
mod stop_reason;
mod error_policy;
mod normalize;
pub(crate) mod step_error;
pub(crate) mod user_message;
mod limits;
pub(crate) mod revision;
mod request_counts;
mod call_index;
mod settings;
pub(crate) mod handoff;
mod approval;
mod wait;
pub(crate) mod resolve_error;
mod step;
mod call_state;
mod amendment;
mod shared_vec;
mod shared_cache;
mod saved_execution;
pub(crate) mod effect;
pub(crate) mod compaction;
pub(crate) mod cache_use;
mod history;
pub(crate) mod state;
mod access;
mod call;
mod turn;
mod log;
mod call_ids;
mod ledger;
mod check_limits;
pub(crate) mod summary;
mod inner;
mod hand_off;
mod view;
mod request;
mod opening;
mod visible;
mod repeated_calls;
mod undo;
mod approve;
mod resolve;
mod provider_questions;
mod room;
mod transitions;
mod review;
mod remote;
mod answer;
pub(crate) mod event;
pub(crate) mod event_record;
pub(crate) mod changes;
mod revise;
mod error;
mod finish;
mod fork;
mod emitted;
mod shown;
pub(crate) mod reader;
mod profile;
pub(crate) mod engine;
pub(crate) mod recorded;
mod saved;

pub use self::answer::Answer;
pub(crate) use self::approve::SAID_INSTEAD;
pub(crate) use self::cache_use::CacheUse;
pub(crate) use self::changes::RunChanges;
pub(crate) use self::compaction::CompactionRecord;
pub(crate) use self::compaction::{Carried, MAX_USELESS, ProviderSummary};
pub(crate) use self::effect::{Effect, EffectId, LayerSubject, RunPath};
pub(crate) use self::engine::EffectResult;
pub use self::error::{RunError, RunErrorKind};
pub(crate) use self::error_policy::ErrorPolicies;
pub use self::error_policy::ErrorPolicy;
pub(crate) use self::hand_off::without_refusal;
pub(crate) use self::handoff::Handoff;
pub use self::id::RunId;
pub(crate) use self::ledger::{Ledger, LedgerError};
pub(crate) use self::limits::MAX_DEPTH;
pub use self::limits::RunLimits;
pub(crate) use self::normalize::{NormalizedResponse, clean_name};
pub(crate) use self::reader::LogReader;
pub(crate) use self::request::SharedRequest;
pub(crate) use self::resolve_error::{ResolveError, ResolveErrorKind};
pub(crate) use self::review::REJECTED;
pub(crate) use self::revision::RunRevision;
pub(crate) use self::settings::{AgentSettings, QuestionSettings};
pub(crate) use self::state::GivenUp;
pub use self::state::Run;
pub(crate) use self::state::{EmittedCalls, InnerRun, LayerSight};
pub use self::step::Step;
pub(crate) use self::step_error::FULL;
pub(crate) use self::step_error::StepError;
pub use self::stop_reason::StopReason;
pub(crate) use self::undo::may_be_undo;
pub(crate) use self::user_message::MessageVolume;
pub use self::user_message::UserMessage;
pub(crate) use self::view::RunView;
pub(crate) use self::visible::reading_hint;
pub use self::wait::{Decision, Wait, WaitReason};
