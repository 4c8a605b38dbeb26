//! Asks a person from inside a call.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::task::Waker;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ask_error::{AskError, AskErrorKind};
use super::asking::{Asking, Computing};
use super::call_notes::{MAX_TEXT, Parked};
use super::pending_question::PendingQuestion;
use crate::arguments::Contract;
use crate::model::ToolPolicy;
use crate::schema;
use crate::tool::{AnswerType, Question, Timestamp, Wrapped};

/// Asks a person from inside a call. A tool injects it, as `#[inject] user: &Asker`, or takes it from its
/// [context](crate::ToolContext::asker).
///
/// The run stores the call and waits, for days if need be. Then the function is **executed again from its start**, with the same
/// [key](crate::tool::IdempotencyKey) and as the same attempt, and each question returns its answer. So what stands before a question
/// is executed again; [`once`](Self::once) records what must not be. The effect of a tool stands after its last question.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use serde_json::json;
/// use tool_core::run::{Decision, Run};
/// use tool_core::testing::ScriptedModel;
/// use tool_core::tool::Asker;
/// use tool_core::{Agent, ToolError, tool, tools};
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// struct Seat {
///     row: u8,
///     letter: char,
/// }
///
/// #[tool("Books a seat on a flight", at_most_once)]
/// async fn book(flight: String, #[inject] user: &Asker) -> Result<String, ToolError> {
///     let free = [Seat { row: 3, letter: 'A' }, Seat { row: 12, letter: 'C' }];
///     let seat: Seat = user.ask("Which seat?").choices(free).await?;
///     Ok(format!("{}{} on {flight}", seat.row, seat.letter))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("book", r#"{"flight": "OS 87"}"#).says("Booked.");
/// let agent = Agent::builder(model).tools(tools![book]).build()?;
/// let state = serde_json::to_string(agent.ask("Book OS 87").await.unwrap_err().run())?;
///
/// // Days later, in another process:
/// let mut run: Run = serde_json::from_str(&state)?;
/// let wait = run.waits().remove(0);
/// assert_eq!(wait.question().unwrap().text(), "Which seat?");
/// run.resolve(&wait.id, Decision::answer(json!({ "row": 12, "letter": "C" })))?;
/// let answer = agent.resume(run).await?;
/// assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "12C on OS 87");
/// # Ok(())
/// # }
/// ```
///
/// An answer belongs to the text of its question, its type, and how often the call has asked the same before; the order in which
/// questions are awaited does not matter. A call can ask 32 questions.
pub struct Asker(Result<Arc<Asking>, AskError>);

impl Asker {
    /// Reaches nobody: every question fails, unless it has a default.
    pub(crate) const NOBODY: Self = Self(Err(AskError::OUTSIDE));

    /// Reaches nobody, for this reason.
    pub(crate) fn refusing(why: String) -> Self {
        Self(Err(AskError::new(AskErrorKind::Unavailable, why)))
    }

    /// Creates the asker of a call. One that undoes another must not wait, and the output of a pure one must depend on its arguments.
    pub(crate) fn new(asking: &Arc<Asking>, is_undo: bool, policy: &ToolPolicy) -> Self {
        Self(match (is_undo, policy.pure) {
            (true, _) => Err(AskError::OUTSIDE),
            (false, true) => Err(AskError::PURE),
            (false, false) => Ok(Arc::clone(asking)),
        })
    }

    /// Returns `true` if a question could reach somebody.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.0.is_ok()
    }

    /// Asks a question. Await the result; the options of the question are set before that.
    pub fn ask<T: AnswerType>(&self, text: impl Into<String>) -> PendingQuestion<'_, T> {
        let root = schema::arguments_schema::<Wrapped<T>>();
        let mut schema = root["properties"]["answer"].clone();
        if let (Some(definitions), Some(schema)) = (root.get("$defs"), schema.as_object_mut()) {
            schema.insert("$defs".into(), definitions.clone());
        }
        self.question(text.into(), schema, root)
    }

    /// Asks for a JSON value that this schema describes. The answer need not match it.
    pub fn ask_json(&self, text: impl Into<String>, schema: Value) -> PendingQuestion<'_, Value> {
        let root =
            json!({ "type": "object", "properties": { "answer": schema.clone() }, "required": ["answer"] });
        self.question(text.into(), schema, root)
    }

    /// Returns a question whose answer is the member `answer` of an object with this schema.
    fn question<T: AnswerType>(&self, text: String, schema: Value, root: Value) -> PendingQuestion<'_, T> {
        let occurrence = self.count(&format!("{schema} {text}"));
        let question = Question {
            text,
            schema,
            choices: Vec::new(),
            labels: Vec::new(),
            default: None,
            is_secret: false,
            expires: None,
            occurrence,
            round: 0,
            problem: None,
        };
        PendingQuestion::new(self.0.as_deref().map_err(Clone::clone), question, Contract::of_type(root))
    }

    /// Computes a value and records it under a name, so that it is not computed again when the call is executed again. Errors are not
    /// recorded. If a name is used several times, each use has a value of its own.
    ///
    /// The value is stored with the run before this returns. If the process dies while it is computed, it is computed again, unless the
    /// tool is `at_most_once`: pass [`IdempotencyKey::step`](crate::tool::IdempotencyKey::step) to the service. A call that is executed
    /// by request (`CallRequest`) stores it when it next waits or ends.
    ///
    /// ```
    /// use tool_core::tool::{Asker, IdempotencyKey};
    /// use tool_core::{ToolError, tool};
    ///
    /// #[tool("Books a room")]
    /// async fn book(#[inject] user: &Asker, #[inject] key: &IdempotencyKey) -> Result<String, ToolError> {
    ///     let hold = user.once("hold", place_hold(key.step("hold"))).await?;
    ///     match user.ask::<bool>(format!("Hold {hold} is placed. Book it?")).await? {
    ///         true => Ok(format!("booked {hold}")),
    ///         false => Ok("not booked".into()),
    ///     }
    /// }
    ///
    /// async fn place_hold(key: IdempotencyKey) -> Result<u32, ToolError> {
    ///     // POST /holds, Idempotency-Key: {key}
    /// #   let _ = key;
    ///     Ok(7)
    /// }
    /// # let _ = book;
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of the future, or fails if the recorded value has another type or is too large.
    pub async fn once<T, E>(&self, name: &str, value: impl Future<Output = Result<T, E>>) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<AskError>,
    {
        let lost = |why: String| AskError::new(AskErrorKind::Invalid, why);
        let Some(asking) = self.of_call() else { return value.await };
        let used = format!("once {name}");
        let occurrence = self.count(&used);
        let recorded = asking.lock().notes.value(name, occurrence).map(str::to_owned);
        if let Some(recorded) = recorded {
            return serde_json::from_str(&recorded).map_err(|error| lost(error.to_string()).into());
        }
        let _computing = Computing::start(asking);
        let value = match value.await {
            Ok(value) => value,
            Err(error) => {
                // The next use has it, as if there was no failure, which the next execution does not see.
                asking.lock().failed.entry(used).or_default().insert(occurrence);
                return Err(error);
            }
        };
        let text = serde_json::to_string(&value).map_err(|error| lost(error.to_string()))?;
        let notes = {
            let mut state = asking.lock();
            state.notes.record(name.to_owned(), occurrence, text).map_err(|why| lost(why.into()))?;
            state.notes.clone()
        };
        if let Some(store) = &asking.store
            && !store(notes).await
        {
            return Err(lost("the run was continued elsewhere".into()).into());
        }
        Ok(value)
    }

    /// Parks the call until a point in time: the call ends, and is executed again from its start, where [`parked`](Self::parked)
    /// returns the state. So a call can poll a task elsewhere without occupying anything. Returns only if the call cannot be parked. A tool
    /// learns by [`Tool::give_up`](crate::Tool::give_up) that a parked call will not be continued.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tool_core::signatures::Timestamp;
    /// use tool_core::tool::Asker;
    /// use tool_core::{ToolError, tool};
    ///
    /// #[tool("Prints a document")]
    /// async fn print(#[inject] user: &Asker) -> Result<String, ToolError> {
    ///     let order = match user.parked::<u32>()? {
    ///         Some(order) => order,
    ///         None => 17, // POST /orders
    ///     };
    ///     let is_done = false; // GET /orders/17
    ///     if is_done {
    ///         return Ok("printed".into());
    ///     }
    ///     Err(user.park(&order, Timestamp::now().after(Duration::from_secs(60))).await.into())
    /// }
    /// # let _ = print;
    /// ```
    pub async fn park(&self, state: &impl Serialize, until: Timestamp) -> AskError {
        let asking = match &self.0 {
            Ok(asking) if asking.is_of_provider => return AskError::OUTSIDE,
            Ok(asking) => asking,
            Err(reason) => return reason.clone(),
        };
        match serde_json::to_string(state) {
            Ok(state) if state.len() <= MAX_TEXT => {
                let mut asking = asking.lock();
                asking.parked = Some(Parked { state, until: Some(until), since: None });
                asking.waker.take().into_iter().for_each(Waker::wake);
            }
            Ok(_) => {
                return AskError::new(AskErrorKind::Invalid, "the state of the call is too large".into());
            }
            Err(error) => return AskError::new(AskErrorKind::Invalid, error.to_string()),
        }
        pending().await
    }

    /// Returns the state that the call was [parked](Self::park) with, if it was.
    ///
    /// # Errors
    ///
    /// Fails if the state has another type.
    pub fn parked<S: DeserializeOwned>(&self) -> Result<Option<S>, AskError> {
        let Some(asking) = self.of_call() else { return Ok(None) };
        let state = asking.lock().notes.state().map(serde_json::from_str).transpose();
        state.map_err(|error| AskError::new(AskErrorKind::Invalid, error.to_string()))
    }

    /// Returns what is recorded for a call.
    fn of_call(&self) -> Option<&Asking> {
        self.0.as_deref().ok().filter(|asking| !asking.is_of_provider)
    }

    /// Counts the uses of a question or a name in this execution.
    fn count(&self, used: &str) -> u32 {
        let Ok(asking) = &self.0 else { return 0 };
        let mut state = asking.lock();
        if let Some(failed) = state.failed.get_mut(used).and_then(BTreeSet::pop_first) {
            return failed;
        }
        let next = state.occurrences.entry(used.to_owned()).or_default();
        *next += 1;
        *next - 1
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker")
    }
}
