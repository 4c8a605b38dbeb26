//! What a step has changed in a run, for drivers that record steps and not states.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::state::Run;
use super::step_error::StepError;

/// What a step has changed in a run. It grows with the step and not with the run.
///
/// ```
/// use tool_core::Message;
/// use tool_core::model::{AssistantMessage, ChatResponse};
/// use tool_core::run::{Run, RunChanges};
///
/// let run = Run::new([Message::user("Hello")]);
/// let mut copy = run.clone();
/// copy.record_response(ChatResponse::new(AssistantMessage::text("Good morning!")))?;
/// let stored = serde_json::to_string(&copy.changes_since(&run))?;
///
/// let changes: RunChanges = serde_json::from_str(&stored)?;
/// let mut replayed = run;
/// replayed.apply_changes(&changes)?;
/// assert_eq!(replayed.finish()?.text(), "Good morning!");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunChanges(Option<Change>);

/// A change of a JSON value.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    Set(Value),
    /// Changes of members. Those without a change are removed.
    Members(BTreeMap<String, Option<Change>>),
    /// Changes of items, and further items.
    Items {
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        changed: BTreeMap<usize, Change>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        added: Vec<Value>,
    },
}

impl Change {
    fn between(before: Value, after: Value) -> Option<Self> {
        match (before, after) {
            (before, after) if before == after => None,
            (Value::Object(before), Value::Object(after)) => Some(Self::of_members(before, after)),
            (Value::Array(before), Value::Array(after)) if before.len() <= after.len() => {
                let known = before.len();
                let mut after = after.into_iter();
                let pairs = before.into_iter().zip(after.by_ref().take(known)).enumerate();
                let changed = pairs.filter_map(|(index, (before, after))| {
                    Self::between(before, after).map(|change| (index, change))
                });
                let changed = changed.collect();
                Some(Self::Items { changed, added: after.collect() })
            }
            (_, after) => Some(Self::Set(after)),
        }
    }

    fn of_members(mut before: Map<String, Value>, after: Map<String, Value>) -> Self {
        let mut members = BTreeMap::new();
        for (name, after) in after {
            match before.remove(&name) {
                Some(before) => {
                    if let Some(change) = Self::between(before, after) {
                        members.insert(name, Some(change));
                    }
                }
                None => drop(members.insert(name, Some(Self::Set(after)))),
            }
        }
        members.extend(before.into_iter().map(|(name, _)| (name, None)));
        Self::Members(members)
    }

    /// Returns `None` if the value has another form.
    fn apply(&self, value: &mut Value) -> Option<()> {
        match self {
            Self::Set(after) => *value = after.clone(),
            Self::Members(members) => {
                let object = value.as_object_mut()?;
                for (name, change) in members {
                    match change {
                        Some(change) => change.apply(object.entry(name.clone()).or_insert(Value::Null))?,
                        None => drop(object.remove(name)),
                    }
                }
            }
            Self::Items { changed, added } => {
                let list = value.as_array_mut()?;
                for (index, change) in changed {
                    change.apply(list.get_mut(*index)?)?;
                }
                list.extend(added.iter().cloned());
            }
        }
        Some(())
    }
}

impl Run {
    /// Returns what a step has changed in this run since this state of it, except for the time that it took.
    #[must_use]
    pub fn changes_since(&self, before: &Self) -> RunChanges {
        // A run can always be serialized.
        let state = |run: &Self| serde_json::to_value(run).unwrap_or_default();
        let mut after = self.clone();
        after.elapsed = before.elapsed;
        RunChanges(Change::between(state(before), state(&after)))
    }

    /// Applies what a step has changed in this state of the run. The time of the run stays as it is.
    ///
    /// # Errors
    ///
    /// Fails if the changes are of another state.
    pub fn apply_changes(&mut self, changes: &RunChanges) -> Result<(), StepError> {
        let Some(change) = &changes.0 else { return Ok(()) };
        let mut state = serde_json::to_value(&*self).unwrap_or_default();
        let changed = change.apply(&mut state).and_then(|()| serde_json::from_value::<Self>(state).ok());
        let changed = changed.ok_or(StepError("the changes are of another state of the run"))?;
        *self = Self { now: self.now, ..changed };
        Ok(())
    }
}

impl RunChanges {
    /// Returns `true` if nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Omits all values, because conversations are private.
impl fmt::Debug for RunChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunChanges").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}
