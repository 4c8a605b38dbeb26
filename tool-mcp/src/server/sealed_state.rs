//! What a call that asks needs when the host calls again: encrypted, authenticated, for one call of one caller, and only once.
//!
//! The SDK's `RequestStateCodec` only signs: a host could read the values that tools record with `Asker::once`.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tool_core::engine::CallRequest;
use tool_core::signatures::Timestamp;

use super::task_id::TaskId;

/// The time in which the user of the host has to answer.
pub(super) const TIME_TO_LIVE: Duration = Duration::from_secs(10 * 60);

/// The longest state, in bytes. Hosts need not accept longer ones.
const MAX_STATE_BYTES: usize = 32 * 1024;

/// The number of redeemed states that are remembered of one caller.
const MAX_REDEEMED: usize = 10_000;

/// The number of callers from which on those are forgotten whose states have expired.
const MANY_CALLERS: usize = 100;

/// Seals the states of one server. The key is lost with the process.
pub(super) struct StateSealer {
    key: LessSafeKey,
    redeemed: Mutex<Redeemed>,
}

/// A call that has asked.
#[derive(Serialize, Deserialize)]
pub(super) struct AskedCall {
    /// The call with its questions and all that it has recorded.
    pub(super) request: CallRequest,
    /// How often the call has asked.
    pub(super) round: usize,
    /// The arguments are those that the host sends again.
    pub(super) omits_arguments: bool,
    /// The task that the call can become.
    pub(super) task: Option<TaskId>,
    expires: Timestamp,
    #[serde(skip)]
    id: [u8; NONCE_LEN],
}

/// The states that were redeemed and have not expired yet. Each caller has a limit of its own, because beyond it earlier states of the caller
/// count as redeemed.
#[derive(Default)]
struct Redeemed {
    callers: HashMap<String, OfCaller>,
    /// All states that expire no later have expired. The clock can go back, so this must not be forgotten.
    expired: Timestamp,
    /// The number of callers at which those without states are forgotten.
    sweep_at: usize,
}

#[derive(Default)]
struct OfCaller {
    states: BTreeSet<StateId>,
    /// All states that expire no later count as redeemed.
    floor: Timestamp,
}

/// The expiry and the nonce of a state.
type StateId = (Timestamp, [u8; NONCE_LEN]);

impl AskedCall {
    pub(super) fn new(request: CallRequest, round: usize) -> Self {
        let expires = Timestamp::now().after(TIME_TO_LIVE);
        Self { request, round, omits_arguments: false, task: None, expires, id: [0; NONCE_LEN] }
    }
}

impl StateSealer {
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0; 32];
        let no_random = |_| io::Error::other("the system has no random numbers");
        SystemRandom::new().fill(&mut bytes).map_err(no_random)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(no_random)?;
        Ok(Self { key: LessSafeKey::new(key), redeemed: Mutex::default() })
    }

    /// Returns the state of a call, which only opens with the same binding, or `None` if it is too large.
    pub(super) fn seal(&self, call: &AskedCall, binding: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut text = serde_json::to_vec(call).ok()?;
        let sealed = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(sealed, Aad::from(binding), &mut text).ok()?;
        let state = URL_SAFE_NO_PAD.encode([&nonce[..], &text].concat());
        (state.len() <= MAX_STATE_BYTES).then_some(state)
    }

    /// Opens a state, unless it is of another server or binding, was changed, or has expired.
    pub(super) fn open(&self, state: &str, binding: &[u8], now: Timestamp) -> Option<AskedCall> {
        if state.len() > MAX_STATE_BYTES {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(state).ok()?;
        let (id, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*id);
        let text = self.key.open_in_place(nonce, Aad::from(binding), &mut text).ok()?;
        let call = AskedCall { id: *id, ..serde_json::from_slice(text).ok()? };
        (now < call.expires).then_some(call)
    }

    /// Returns `true` if the state of a call is redeemed for the first time.
    pub(super) fn redeem(&self, call: &AskedCall, caller: &str, now: Timestamp) -> bool {
        let mut redeemed = self.redeemed.lock().unwrap_or_else(PoisonError::into_inner);
        redeemed.redeem(caller, (call.expires, call.id), now)
    }
}

impl Redeemed {
    fn redeem(&mut self, caller: &str, state: StateId, now: Timestamp) -> bool {
        if state.0 <= self.expired {
            return false;
        }
        let of_caller = self.callers.entry(caller.to_owned()).or_default();
        if state.0 <= of_caller.floor || !of_caller.states.insert(state) {
            return false;
        }
        if of_caller.states.len() > MAX_REDEEMED {
            of_caller.floor = of_caller.states.pop_first().unwrap_or_default().0;
        }
        self.expired = self.expired.max(of_caller.expire(now));
        if self.callers.len() >= self.sweep_at.max(MANY_CALLERS) {
            self.callers.retain(|_, of_caller| {
                self.expired = self.expired.max(of_caller.expire(now));
                !of_caller.states.is_empty() || of_caller.floor > self.expired
            });
            self.sweep_at = self.callers.len() * 2;
        }
        true
    }
}

impl OfCaller {
    /// Removes what has expired, and returns the last of these times.
    fn expire(&mut self, now: Timestamp) -> Timestamp {
        let mut expired = if self.floor <= now { self.floor } else { Timestamp::default() };
        while let Some((expires, _)) = self.states.first().copied().filter(|(expires, _)| *expires <= now) {
            expired = expires;
            self.states.pop_first();
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use tool_core::ToolCall;

    use super::*;

    fn asked() -> AskedCall {
        AskedCall::new(CallRequest::standalone(ToolCall::new("call_1", "book", "secret arguments")), 1)
    }

    #[test]
    fn a_state_opens_only_unchanged_in_time_and_for_its_binding() {
        let (sealer, call) = (StateSealer::new().unwrap(), asked());
        let state = sealer.seal(&call, b"ada").unwrap();
        let open = |state: &str, binding: &[u8], now| sealer.open(state, binding, now).map(|call| call.round);
        let now = Timestamp::now();
        assert_eq!(open(&state, b"ada", now), Some(1));
        assert_eq!(open(&state, b"eve", now), None);
        assert_eq!(open(&state, b"ada", call.expires), None);
        assert!(StateSealer::new().unwrap().open(&state, b"ada", now).is_none());
        for position in 0..state.len() {
            let mut changed = state.clone().into_bytes();
            changed[position] = if changed[position] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open(&changed, b"ada", now), None, "{position}");
        }
        for wrong in ["", "A", "=", &state[..16], &format!("{state}A"), &"A".repeat(MAX_STATE_BYTES + 1)] {
            assert_eq!(open(wrong, b"ada", now), None, "{wrong}");
        }
        let bytes = URL_SAFE_NO_PAD.decode(&state).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("secret"));
    }

    #[test]
    fn a_state_is_redeemed_once() {
        let (sealer, now) = (StateSealer::new().unwrap(), Timestamp::now());
        let state = sealer.seal(&asked(), b"").unwrap();
        let open = || sealer.open(&state, b"", now).unwrap();
        assert!(sealer.redeem(&open(), "ada", now));
        assert!(!sealer.redeem(&open(), "ada", now));
        // Also if the clock goes back after the state has been forgotten.
        let later = now.after(TIME_TO_LIVE * 2);
        let other = AskedCall { expires: later.after(TIME_TO_LIVE), id: [1; NONCE_LEN], ..asked() };
        assert!(sealer.redeem(&other, "ada", later));
        assert_eq!(sealer.redeemed.lock().unwrap().callers["ada"].states.len(), 1);
        assert!(!sealer.redeem(&open(), "ada", now));
    }

    fn state(number: u64) -> StateId {
        let mut id = [0; NONCE_LEN];
        id[..8].copy_from_slice(&number.to_be_bytes());
        (Timestamp::from_millis(number + 1), id)
    }

    #[test]
    fn the_number_of_remembered_states_is_bounded_for_each_caller() {
        let (mut redeemed, now) = (Redeemed::default(), Timestamp::default());
        let number = u64::try_from(MAX_REDEEMED).unwrap() + 10;
        assert!(redeemed.redeem("ada", state(0), now));
        assert!((0..number).all(|number| redeemed.redeem("eve", state(number), now)));
        assert_eq!(redeemed.callers["eve"].states.len(), MAX_REDEEMED);
        assert!((0..number).all(|number| !redeemed.redeem("eve", state(number), now)));
        // Nobody else is affected.
        assert!(redeemed.redeem("ada", state(1), now));
        assert!(!redeemed.redeem("ada", state(0), now));
    }

    #[test]
    fn callers_without_states_are_forgotten() {
        let mut redeemed = Redeemed::default();
        for number in 0..10 * u64::try_from(MANY_CALLERS).unwrap() {
            let (expires, id) = state(number);
            let now = Timestamp::from_millis(number);
            assert!(redeemed.redeem(&format!("caller {number}"), (expires, id), now), "{number}");
            assert!(redeemed.callers.len() <= MANY_CALLERS);
        }
        assert!(!redeemed.redeem("caller 0", state(0), Timestamp::default()));
    }

    #[test]
    fn large_calls_are_not_sealed() {
        let call = ToolCall::new("call_1", "book", "a".repeat(MAX_STATE_BYTES));
        let call = AskedCall::new(CallRequest::standalone(call), 1);
        assert!(StateSealer::new().unwrap().seal(&call, b"").is_none());
    }
}
