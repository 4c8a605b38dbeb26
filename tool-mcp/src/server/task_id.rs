//! The ids of tasks.

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tool_core::engine::CallRequest;
use tool_core::model::RunUser;
use tool_core::signatures::Timestamp;
use tool_http::server::Caller;

/// The longest id that is considered: that of a task has 44 bytes.
const MAX_ID_BYTES: usize = 64;

/// The id by which a host knows a task: the time at which it was created, and 128 random bits.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct TaskId(String);

impl TaskId {
    /// Creates an id, unless the system has no random numbers.
    pub(super) fn new() -> Option<Self> {
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random).ok()?;
        Some(Self(format!("{:011x}-{:032x}", Timestamp::now().as_millis(), u128::from_be_bytes(random))))
    }

    /// Reads an id of a host, unless it cannot be that of a task.
    pub(super) fn parse(id: &str) -> Option<Self> {
        let is_read = id.len() <= MAX_ID_BYTES && id.split_once('-').is_some();
        is_read.then(|| Self(id.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the time at which the task was created.
    pub(super) fn created(&self) -> Timestamp {
        let millis = self.0.split_once('-').and_then(|(millis, _)| u64::from_str_radix(millis, 16).ok());
        Timestamp::from_millis(millis.unwrap_or_default())
    }

    /// Returns the id of the run of this task, which only its caller finds: a digest of both.
    pub(super) fn run_id(&self, caller: Caller) -> String {
        format!("{}{}", Self::run_prefix(caller), caller.derive_id(&format!("task {}", self.0)))
    }

    /// Gives a call that begins the key of the run of this task, of which it may become a part.
    pub(super) fn bind(&self, call: &mut CallRequest, caller: Caller, user: Option<RunUser>) {
        call.attempt.key = format!("{}/{}", self.run_id(caller), call.call.id).into();
        call.user = user;
    }

    /// Returns the start of the ids of the runs of all tasks of a caller.
    pub(super) fn run_prefix(caller: Caller) -> String {
        format!("task_{}_", &caller.derive_id("tasks")[..16])
    }

    /// Returns the start of the id of a run, which all runs of its caller have.
    pub(super) fn prefix_of(run: &str) -> &str {
        run.rfind('_').map_or(run, |end| &run[..=end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_its_caller_alone_to_the_run() {
        let (ada, eve) = (Caller::with_key(b"ada"), Caller::with_key(b"eve"));
        let (id, other) = (TaskId::new().unwrap(), TaskId::new().unwrap());
        let read = TaskId::parse(id.as_str()).unwrap();
        assert_eq!(read.run_id(ada), id.run_id(ada));
        assert_eq!(TaskId::prefix_of(&id.run_id(ada)), TaskId::run_prefix(ada));
        for wrong in [id.run_id(eve), id.run_id(Caller::ANYONE), other.run_id(ada)] {
            assert_ne!(wrong, id.run_id(ada));
        }
        assert!(Timestamp::now().since(id.created()).as_secs() < 60);
        // A host cannot shift the time of its task.
        let (_, random) = id.as_str().split_once('-').unwrap();
        assert_ne!(TaskId::parse(&format!("0-{random}")).unwrap().run_id(ada), id.run_id(ada));
        for wrong in ["", "0", &"0-".repeat(100)] {
            assert!(TaskId::parse(wrong).is_none());
        }
    }
}
