//! Asks a person from inside a call.
//!
//! A call that has to wait ends: the executor drops its future, and the run stores the call with its notes. Once all questions have a
//! reply, the call is executed again from its start, and finds the replies in its notes.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call_notes::{CallNotes, MAX_QUESTIONS, MAX_TEXT, Parked, Reply};
use crate::arguments::Contract;
use crate::model::ToolPolicy;
use crate::schema;
use crate::tool::{AnswerType, IntoAnswer, Question, Timestamp, ToolError, Wrapped, decode_answer};

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
pub struct Asker(Result<Arc<Asking>, Unavailable>);

/// The reason why nobody can be asked.
#[derive(Clone, Copy)]
enum Unavailable {
    /// The call belongs to no run, or undoes another.
    Outside,
    /// The output of the tool must depend on its arguments alone.
    Pure,
}

impl From<Unavailable> for AskError {
    fn from(reason: Unavailable) -> Self {
        let why = match reason {
            Unavailable::Outside => None,
            Unavailable::Pure => Some(
                "a `pure` tool cannot ask, because its output depends on its arguments alone; remove `pure`",
            ),
        };
        Self { kind: AskErrorKind::Unavailable, why: why.map(str::to_owned) }
    }
}

impl Asker {
    /// Reaches nobody: every question fails, unless it has a default.
    pub(crate) const NOBODY: Self = Self(Err(Unavailable::Outside));

    /// Creates the asker of a call. One that undoes another must not wait, and the output of a pure one must depend on its arguments.
    pub(crate) fn new(asking: &Arc<Asking>, is_undo: bool, policy: &ToolPolicy) -> Self {
        Self(match (is_undo, policy.pure) {
            (true, _) => Err(Unavailable::Outside),
            (false, true) => Err(Unavailable::Pure),
            (false, false) => Ok(Arc::clone(asking)),
        })
    }

    /// Asks a question. Await the result; the options of the question are set before that.
    pub fn ask<T: AnswerType>(&self, text: impl Into<String>) -> AskQuestion<'_, T> {
        let root = schema::arguments_schema::<Wrapped<T>>();
        let mut schema = root["properties"]["answer"].clone();
        if let (Some(definitions), Some(schema)) = (root.get("$defs"), schema.as_object_mut()) {
            schema.insert("$defs".into(), definitions.clone());
        }
        let text = text.into();
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
        AskQuestion { asker: self, question, invalid: None, contract: Contract::of_type(root), read }
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
        let Ok(asking) = &self.0 else { return value.await };
        let occurrence = self.count(&format!("once {name}"));
        let recorded = asking.lock().notes.value(name, occurrence).map(str::to_owned);
        if let Some(recorded) = recorded {
            return serde_json::from_str(&recorded).map_err(|error| lost(error.to_string()).into());
        }
        let _computing = Computing::start(asking);
        let value = value.await?;
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
    /// returns the state. So a call can poll a task elsewhere without occupying anything. Returns only if the call cannot be parked.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tool_core::tool::{Asker, Timestamp};
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
            Ok(asking) => asking,
            Err(reason) => return (*reason).into(),
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
        let Ok(asking) = &self.0 else { return Ok(None) };
        let state = asking.lock().notes.state().map(serde_json::from_str).transpose();
        state.map_err(|error| AskError::new(AskErrorKind::Invalid, error.to_string()))
    }

    /// Counts the uses of a question or a name in this execution.
    fn count(&self, used: &str) -> u32 {
        let Ok(asking) = &self.0 else { return 0 };
        let mut state = asking.lock();
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

/// A question that is asked once it is awaited; created by [`Asker::ask`].
#[must_use = "a question is asked once it is awaited"]
pub struct AskQuestion<'a, T> {
    asker: &'a Asker,
    question: Question,
    /// The reason why it cannot be asked.
    invalid: Option<String>,
    contract: Contract,
    /// With it, only [`Asker::ask`] has a bound on `T`, so an unmet one is reported once and not for each later method.
    read: fn(&str, &Contract) -> Result<T, String>,
}

impl<'a, T> AskQuestion<'a, T> {
    /// Sets the answers to choose from. If the call is executed again and the answer is no longer among them, the question is asked
    /// again.
    pub fn choices<C: IntoAnswer<T>>(self, choices: impl IntoIterator<Item = C>) -> Self
    where
        T: Serialize,
    {
        self.choose_from(choices.into_iter().map(IntoAnswer::into_answer))
    }

    /// Sets the answers to choose from, like [`choices`](Self::choices), each with the text that the person sees in its place.
    pub fn choices_with_labels<C: IntoAnswer<T>, L: Into<String>>(
        mut self,
        choices: impl IntoIterator<Item = (C, L)>,
    ) -> Self
    where
        T: Serialize,
    {
        let (choices, labels): (Vec<_>, _) =
            choices.into_iter().map(|(choice, label)| (choice.into_answer(), label.into())).unzip();
        self.question.labels = labels;
        self.choose_from(choices)
    }

    fn choose_from(mut self, choices: impl IntoIterator<Item = T>) -> Self
    where
        T: Serialize,
    {
        let choices: Result<Vec<_>, _> = choices.into_iter().map(serde_json::to_value).collect();
        match choices {
            Ok(choices) if choices.is_empty() => {
                self.invalid = Some("there is nothing to choose from".into())
            }
            Ok(choices) => self.question.choices = choices,
            Err(error) => self.invalid = Some(error.to_string()),
        }
        self
    }

    /// Sets the answer that is suggested, and that holds if the question expires or nobody can be asked.
    pub fn default(mut self, answer: impl IntoAnswer<T>) -> Self
    where
        T: Serialize,
    {
        match serde_json::to_value(answer.into_answer()) {
            Ok(answer) => self.question.default = Some(answer),
            Err(error) => self.invalid = Some(error.to_string()),
        }
        self
    }

    /// Keeps the answer in memory only: it is never stored, and a call that is restored asks again.
    pub fn secret(mut self) -> Self {
        self.question.is_secret = true;
        self
    }

    /// Lets the question expire after this time.
    pub fn expires(mut self, after: Duration) -> Self {
        self.question.expires = Some(after);
        self
    }

    async fn ask(mut self) -> Result<T, AskError> {
        if let Some(why) = self.invalid {
            return Err(AskError::new(AskErrorKind::Invalid, why));
        }
        let asking = match &self.asker.0 {
            Ok(asking) => asking,
            Err(reason) => return self.read_default(*reason),
        };
        let reply = asking.lock().notes.find(&self.question).cloned();
        match reply {
            Some(Reply::Answer(answer)) => {
                let checked = self.question.check(&answer);
                match checked.and_then(|()| (self.read)(&answer, &self.contract)) {
                    Ok(answer) => return Ok(answer),
                    Err(problem) => {
                        asking.lock().notes.forget(&self.question);
                        // The problem of a secret answer can quote it.
                        let is_secret = self.question.is_secret;
                        let expected = || self.contract.expected("answer");
                        self.question.problem = Some(if is_secret { expected() } else { problem });
                    }
                }
            }
            Some(Reply::Declined(why)) => {
                let kind = AskErrorKind::Declined;
                return Err(why.map_or_else(|| kind.into(), |why| AskError::new(kind, why)));
            }
            Some(Reply::Expired) => {
                return self.read_default(AskErrorKind::Expired);
            }
            Some(Reply::Unavailable) => {
                return self.read_default(AskErrorKind::Unavailable);
            }
            Some(Reply::Refused(why)) => {
                let error = AskError::new(AskErrorKind::Unavailable, why);
                return self.read_default(error);
            }
            None => {}
        }
        let _open = Open::new(asking, self.question)?;
        // The executor ends the call here.
        pending().await
    }

    fn read_default(&self, why: impl Into<AskError>) -> Result<T, AskError> {
        let Some(default) = &self.question.default else { return Err(why.into()) };
        (self.read)(&default.to_string(), &self.contract)
            .map_err(|problem| AskError::new(AskErrorKind::Invalid, problem))
    }
}

impl<'a, T: 'a> IntoFuture for AskQuestion<'a, T> {
    type Output = Result<T, AskError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

impl<T> fmt::Debug for AskQuestion<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AskQuestion").field(&self.question).finish()
    }
}

/// Reads an answer, or returns what is wrong with it.
fn read<T: AnswerType>(answer: &str, contract: &Contract) -> Result<T, String> {
    let object = format!(r#"{{"answer":{answer}}}"#);
    Ok(decode_answer::<Wrapped<T>>(&object, contract)?.answer)
}

/// The questions and values of one execution of a call.
pub(crate) struct Asking {
    state: Mutex<State>,
    store: Option<StoreNotes>,
}

/// Stores the notes of a call in flight. Returns `false` if that is not possible.
pub(crate) type StoreNotes = Arc<dyn Fn(CallNotes) -> BoxFuture<'static, bool> + Send + Sync>;

#[derive(Default)]
struct State {
    notes: CallNotes,
    occurrences: HashMap<String, u32>,
    /// The questions that are awaited, each with a number of its own.
    open: Vec<(usize, Question)>,
    next: usize,
    parked: Option<Parked>,
    /// The number of values that are being computed. The call does not end before they are recorded.
    computing: usize,
    /// Wakes the executor, because a task of its own can ask as well.
    waker: Option<Waker>,
}

impl Asking {
    pub(crate) fn new(notes: CallNotes) -> Self {
        Self { state: Mutex::new(State { notes, ..State::default() }), store: None }
    }

    pub(crate) fn store(self, store: StoreNotes) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Executes a call until it has an outcome, or has nothing to do but to wait for what is in the notes.
    ///
    /// A call that waits is dropped: its future is only a cache of what the notes contain.
    pub(crate) async fn execute<T>(&self, execution: impl Future<Output = T>) -> Result<T, CallNotes> {
        let mut execution = pin!(execution);
        poll_fn(|context| match execution.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Ok(outcome)),
            Poll::Pending => match self.poll_waiting(context.waker()) {
                Some(notes) => Poll::Ready(Err(notes)),
                None => Poll::Pending,
            },
        })
        .await
    }

    fn poll_waiting(&self, waker: &Waker) -> Option<CallNotes> {
        let mut state = self.lock();
        if state.open.is_empty() && state.parked.is_none() || state.computing > 0 {
            state.waker = Some(waker.clone());
            return None;
        }
        if let Some(parked) = state.parked.take() {
            state.notes.park(parked);
        }
        let open = std::mem::take(&mut state.open).into_iter().map(|(_, question)| question).collect();
        state.notes.ask(open);
        Some(state.notes.clone())
    }

    /// Returns the notes of a call that has ended.
    pub(crate) fn notes(&self) -> Option<CallNotes> {
        Some(self.lock().notes.clone()).filter(|notes| !notes.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is awaited.
struct Open<'a>(&'a Asking, usize);

impl<'a> Open<'a> {
    fn new(asking: &'a Asking, question: Question) -> Result<Self, AskError> {
        let mut state = asking.lock();
        if !state.notes.may_ask(state.open.len() + 1) {
            return Err(AskErrorKind::TooMany.into());
        }
        let number = state.next;
        state.next += 1;
        state.open.push((number, question));
        state.waker.take().into_iter().for_each(Waker::wake);
        Ok(Self(asking, number))
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.lock().open.retain(|(number, _)| *number != self.1);
    }
}

/// A value that is being computed.
struct Computing<'a>(&'a Asking);

impl<'a> Computing<'a> {
    fn start(asking: &'a Asking) -> Self {
        asking.lock().computing += 1;
        Self(asking)
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.computing -= 1;
        state.waker.take().into_iter().for_each(Waker::wake);
    }
}

/// The error of a question. A tool can handle it; with `?`, the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskError {
    kind: AskErrorKind,
    why: Option<String>,
}

/// The kind of an [`AskError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AskErrorKind {
    /// The user declined to answer.
    Declined,
    /// The question expired.
    Expired,
    /// There is nobody to be asked: the call is executed outside a run, undoes another, or is of a `pure` tool.
    Unavailable,
    /// The call has asked too many questions.
    TooMany,
    /// The question cannot be asked, or a recorded value cannot be read.
    Invalid,
}

impl AskError {
    fn new(kind: AskErrorKind, why: String) -> Self {
        Self { kind, why: Some(why) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> AskErrorKind {
        self.kind
    }
}

impl From<AskErrorKind> for AskError {
    fn from(kind: AskErrorKind) -> Self {
        Self { kind, why: None }
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AskErrorKind::Declined => f.write_str("the user declined to answer")?,
            AskErrorKind::Expired => f.write_str("the question to the user expired without an answer")?,
            AskErrorKind::Unavailable => {
                f.write_str("the tool has to ask the user, and nobody can be asked here")?
            }
            AskErrorKind::TooMany => {
                write!(f, "the call has asked {MAX_QUESTIONS} questions and may not ask more")?
            }
            AskErrorKind::Invalid => f.write_str("the user cannot be asked")?,
        }
        self.why.iter().try_for_each(|why| write!(f, ": {why}"))
    }
}

impl Error for AskError {}

impl From<AskError> for ToolError {
    fn from(error: AskError) -> Self {
        Self::failed(error)
    }
}

impl From<AskError> for String {
    fn from(error: AskError) -> Self {
        error.to_string()
    }
}
