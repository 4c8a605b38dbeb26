//! The service that executes calls, each as an invocation of its own.
//!
//! A call without the definition of its tool is refused, unless it undoes another one: the model was not offered its tool, and no rule of a
//! tool applies to it.
//!
//! A cancellation fails the step that the handler waits for, or is taken while the tool is executed. A replay executes no tool, and takes it
//! in the step behind, whose outcome is then lost to it. So that both take the same way, each cancellation is followed by one more step
//! with the outcome, and a call ends with the first step that is not cancelled.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use restate_sdk::prelude::*;
use tool_core::engine::{AgentExt, ToolSetExt};
use tool_core::tool::{Progress, ToolError, ToolExecution};
use tool_core::{Agent, CancellationToken, ToolCall, ToolContext, ToolSet};

use crate::events::Unfinished;
use crate::limit::limited;
use crate::names::CallInput;
use crate::path::stream_name;
use crate::settings::Settings;
use crate::step::panicked;

/// The owner of the tools.
pub(crate) enum Owner {
    Agent(Agent),
    /// A worker without an agent, and the values that its tools take from the context.
    Tools(ToolSet, ToolContext),
}

/// Executes calls for runs. It cannot be invoked from outside, because that would bypass approvals.
pub(crate) struct Calls {
    pub(crate) owner: Owner,
    pub(crate) settings: Arc<Settings>,
}

#[restate_sdk::service]
pub(crate) trait CallsService {
    async fn call(input: Json<CallInput>) -> HandlerResult<Json<ToolExecution>>;
}

impl CallsService for Calls {
    async fn call(
        &self,
        ctx: Context<'_>,
        Json(input): Json<CallInput>,
    ) -> HandlerResult<Json<ToolExecution>> {
        let undoes = input.request.undone.is_some();
        let is_first = loop {
            match is_first_execution!(ctx) {
                Ok(is_first) => break is_first,
                // An effect must not remain because somebody cancels the call that undoes it.
                Err(_) if undoes => {}
                Err(cancelled) => return Err(cancelled.into()),
            }
        };
        let unfinished = Unfinished::default();
        // A cancelled step returns nothing to its caller, so the outcome is left here.
        let executed: Arc<Mutex<Option<Executed>>> = Arc::default();
        if is_first {
            let done = self.execute_until(input.clone(), ctx.signal("cancelled"), &unfinished).await;
            *executed.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        }
        let mut is_cancelled = false;
        let recorded = loop {
            // The journal may have the outcome already: it is then returned, and the tool is not executed.
            let (input, stash, published) = (input.clone(), Arc::clone(&executed), unfinished.clone());
            let cancelled = ctx.signal("cancelled");
            // Boxed, because the compiler cannot prove for every lifetime that the future is `Send`.
            let execute = move || -> BoxFuture<'_, HandlerResult<Json<ToolExecution>>> {
                Box::pin(async move {
                    let earlier = stash.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let done = match earlier {
                        Some(done) => done,
                        None if input.at_most_once => {
                            Executed::unknown(input.request.call, ToolError::outcome_unknown())
                        }
                        None if is_cancelled && !undoes => {
                            Executed::unknown(input.request.call, ToolError::interrupted())
                        }
                        None => self.execute_until(input, cancelled, &published).await,
                    };
                    let execution = done.execution.clone();
                    *stash.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                    Ok(Json(execution))
                })
            };
            match ctx.run(execute).name("outcome").await {
                Err(_) => is_cancelled = true,
                Ok(_) if take_cancellation(&executed) => {}
                Ok(recorded) => break recorded,
            }
        };
        unfinished.finish().await;
        Ok(recorded)
    }
}

/// What has become of a call in this execution of the handler.
#[derive(Clone)]
struct Executed {
    execution: ToolExecution,
    /// A cancellation was taken while the tool was executed, and has no step yet.
    took_cancellation: bool,
}

impl Executed {
    fn unknown(call: ToolCall, error: ToolError) -> Self {
        Self { execution: ToolExecution::new(call, Err(error)), took_cancellation: false }
    }
}

/// Returns `true`, once, if a cancellation was taken while the tool was executed.
fn take_cancellation(executed: &Mutex<Option<Executed>>) -> bool {
    let mut executed = executed.lock().unwrap_or_else(PoisonError::into_inner);
    executed.as_mut().is_some_and(|done| std::mem::take(&mut done.took_cancellation))
}

impl Calls {
    /// Executes a call. Its tool must be the one that the model was offered.
    pub(crate) async fn execute(
        &self,
        input: CallInput,
        cancellation: &CancellationToken,
        unfinished: &Unfinished,
    ) -> ToolExecution {
        let publisher = self.settings.publisher.as_ref().zip(input.events.as_ref());
        let publishing = publisher.map(|(publisher, target)| {
            publisher.begin(target, stream_name(&input.path, "call", &input.request.call.id), None)
        });
        let call = input.request.call.clone();
        let progress =
            publishing.as_ref().map(|publishing| publishing.progress(&input.path, &call)).unwrap_or_default();
        // The engine would repeat a call whose hook, handler of errors or provider panics without end.
        let executed = AssertUnwindSafe(self.execute_with(input, cancellation, progress));
        let execution = executed
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| ToolExecution::new(call, Err(ToolError::fatal(panicked(&*panic)))));
        if let Some(publishing) = publishing {
            unfinished.add(publishing);
        }
        execution
    }

    async fn execute_with(
        &self,
        input: CallInput,
        cancellation: &CancellationToken,
        progress: Progress,
    ) -> ToolExecution {
        let CallInput { mut request, definition, offered, context, agent: names, .. } = input;
        // The rules for approval and the like come from the recorded definition: without it, there are none.
        if definition.is_none() && request.undone.is_none() {
            let error = ToolError::unknown_tool(&request.call.name, offered.iter().map(|name| &**name));
            return ToolExecution::new(request.call, Err(error));
        }
        request.definition = definition;
        let values = match &self.owner {
            Owner::Agent(_) => ToolContext::new(),
            Owner::Tools(_, values) => values.clone(),
        };
        let context = match self.settings.types.apply_to_call(values, &context) {
            Ok(context) => context,
            Err(reason) => return ToolExecution::new(request.call, Err(ToolError::not_executed(&reason))),
        };
        match &self.owner {
            Owner::Agent(agent) => {
                let names: Vec<_> = names.iter().map(|name| &**name).collect();
                agent.execute_request(&names, request, &context, cancellation, progress).await
            }
            Owner::Tools(tools, _) => tools.execute_request(request, &context, cancellation, progress).await,
        }
    }

    /// Executes a call until its invocation is cancelled, unless it undoes another one.
    ///
    /// Nothing resolves the signal: it fails when the invocation is cancelled, which a recorded step does not notice.
    async fn execute_until(
        &self,
        input: CallInput,
        cancelled: impl Future<Output = Result<(), TerminalError>> + Send,
        unfinished: &Unfinished,
    ) -> Executed {
        let (call, undoes) = (input.request.call.clone(), input.request.undone.is_some());
        let cancellation = CancellationToken::new();
        let execution = self.execute(input, &cancellation, unfinished);
        let (execution, took_cancellation) = if undoes {
            (execution.await, false)
        } else {
            match select(std::pin::pin!(execution), std::pin::pin!(cancelled)).await {
                Either::Left((execution, _)) => (execution, false),
                Either::Right(_) => {
                    cancellation.cancel();
                    (ToolExecution::new(call, Err(ToolError::interrupted())), true)
                }
            }
        };
        Executed { execution: limited(execution, self.settings.max_bytes), took_cancellation }
    }
}

/// Records that execution begins. Evaluates to `true` if no earlier execution of the handler has recorded it. A macro, because the
/// SDK's futures are `Send` only for a context of a known type.
macro_rules! is_first_execution {
    ($ctx:expr) => {{
        // Belongs to this execution of the handler: a replay does not run the closure.
        let is_first = ::std::sync::Arc::new(::std::sync::atomic::AtomicBool::new(false));
        let begun = ::std::sync::Arc::clone(&is_first);
        let record = move || async move {
            begun.store(true, ::std::sync::atomic::Ordering::SeqCst);
            Ok(())
        };
        let recorded = $ctx.run(record).name("begin").await;
        recorded.map(|()| is_first.load(::std::sync::atomic::Ordering::SeqCst))
    }};
}
pub(crate) use is_first_execution;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU32, Ordering};

    use bytes::Bytes;
    use futures_util::stream;
    use http_body_util::BodyExt;
    use tokio::sync::mpsc;
    use tool_core::engine::CallRequest;
    use tool_core::tool::ToolErrorKind;
    use tool_core::{Tool, tool, tools};

    use super::*;

    const START: u16 = 0x0000;
    const ERROR: u16 = 0x0002;
    const END: u16 = 0x0003;
    const PROPOSAL: u16 = 0x0005;
    const INPUT: u16 = 0x0400;
    const OUTPUT: u16 = 0x0401;
    const RUN: u16 = 0x0411;
    const RUN_COMPLETION: u16 = 0x8011;
    const SIGNAL: u16 = 0xFBFF;

    /// A message of the protocol of services: its type, and its fields, with their numbers.
    #[derive(Clone, Debug, PartialEq)]
    struct Message(u16, Vec<(u64, Field)>);

    #[derive(Clone, Debug, PartialEq)]
    enum Field {
        Number(u64),
        Bytes(Vec<u8>),
    }

    impl Message {
        fn field(&self, number: u64) -> Option<&Field> {
            self.1.iter().find(|(known, _)| *known == number).map(|(_, field)| field)
        }

        fn bytes(&self, number: u64) -> Option<&[u8]> {
            match self.field(number)? {
                Field::Bytes(bytes) => Some(bytes),
                Field::Number(_) => None,
            }
        }

        fn encode(&self) -> Vec<u8> {
            let fields = encode(&self.1);
            let header = u64::from(self.0) << 48 | fields.len() as u64;
            [&header.to_be_bytes()[..], &fields].concat()
        }
    }

    fn encode(fields: &[(u64, Field)]) -> Vec<u8> {
        fn push(bytes: &mut Vec<u8>, mut number: u64) {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        let mut encoded = Vec::new();
        for (number, field) in fields {
            match field {
                Field::Number(value) => {
                    push(&mut encoded, number << 3);
                    push(&mut encoded, *value);
                }
                Field::Bytes(bytes) => {
                    push(&mut encoded, number << 3 | 2);
                    push(&mut encoded, bytes.len() as u64);
                    encoded.extend(bytes);
                }
            }
        }
        encoded
    }

    fn decode(mut bytes: &[u8]) -> Vec<(u64, Field)> {
        fn take(bytes: &mut &[u8]) -> u64 {
            let (mut number, mut shift) = (0, 0);
            loop {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return number;
                }
            }
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = take(&mut bytes);
            let value = take(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Number(value),
                2 => {
                    let (field, rest) = bytes.split_at(value as usize);
                    bytes = rest;
                    Field::Bytes(field.to_vec())
                }
                other => panic!("wire type {other}"),
            };
            fields.push((tag >> 3, field));
        }
        fields
    }

    /// An engine with one invocation. It appends to the journal what its executions send, and a cancellation once the journal has so many
    /// entries, for each in the list.
    #[derive(Clone)]
    struct Engine {
        endpoint: Endpoint,
        journal: Vec<Message>,
        cancellations: Vec<usize>,
    }

    impl Engine {
        fn new(tool: &ToolSet, input: &CallInput, cancellations: &[usize]) -> Self {
            let owner = Owner::Tools(tool.clone(), ToolContext::new());
            let calls = Calls { owner, settings: Arc::default() };
            let content = encode(&[(1, Field::Bytes(serde_json::to_vec(input).unwrap()))]);
            Self {
                endpoint: Endpoint::builder().bind(calls.serve()).build(),
                journal: vec![Message(INPUT, vec![(14, Field::Bytes(content))])],
                cancellations: cancellations.to_vec(),
            }
        }

        /// Executes the handler with the journal, until it ends or the journal has so many entries, when the worker dies.
        async fn execute(&mut self, dies_at: usize) {
            let (to_worker, messages) = mpsc::unbounded_channel::<Vec<u8>>();
            let messages = stream::unfold(messages, |mut messages| async move {
                let message = messages.recv().await?;
                Some((Ok::<_, Infallible>(Bytes::from(message)), messages))
            });
            let request = http::Request::post("http://worker/invoke/CallsService/call")
                .header("content-type", "application/vnd.restate.invocation.v6")
                .body(reqwest::Body::wrap_stream(messages))
                .unwrap();
            let mut body = Box::pin(self.endpoint.handle(request).into_body());
            let start = [
                (1, Field::Bytes(b"invocation".to_vec())),
                (2, Field::Bytes(b"invocation".to_vec())),
                (3, Field::Number(self.journal.len() as u64)),
            ];
            let _ = to_worker.send(Message(START, start.to_vec()).encode());
            for entry in &self.journal {
                let _ = to_worker.send(entry.encode());
            }
            self.cancel(&to_worker);
            let mut received = Vec::new();
            while self.journal.len() < dies_at {
                let Some(message) = next_message(body.as_mut(), &mut received).await else {
                    panic!("the execution ended: {:?}", self.journal)
                };
                match message.0 {
                    END => return,
                    ERROR => panic!("{}", String::from_utf8_lossy(message.bytes(2).unwrap_or_default())),
                    RUN | OUTPUT => self.journal.push(message),
                    PROPOSAL => {
                        let value = message.bytes(14).unwrap().to_vec();
                        let value = Field::Bytes(encode(&[(1, Field::Bytes(value))]));
                        let id = message.field(1).unwrap().clone();
                        let completion = Message(RUN_COMPLETION, vec![(1, id), (5, value)]);
                        let _ = to_worker.send(completion.encode());
                        self.journal.push(completion);
                    }
                    other => panic!("message {other:#x}"),
                }
                self.cancel(&to_worker);
            }
        }

        /// Cancels the invocation once the journal is long enough.
        fn cancel(&mut self, to_worker: &mpsc::UnboundedSender<Vec<u8>>) {
            while self.cancellations.first().is_some_and(|at| self.journal.len() >= *at) {
                self.cancellations.remove(0);
                let cancellation =
                    Message(SIGNAL, vec![(2, Field::Number(1)), (4, Field::Bytes(Vec::new()))]);
                let _ = to_worker.send(cancellation.encode());
                self.journal.push(cancellation);
            }
        }

        /// Returns the engine when its journal had only its first entries.
        fn with_first(&self, entries: usize) -> Self {
            Self { journal: self.journal[..entries].to_vec(), ..self.clone() }
        }

        /// Returns what the handler has returned.
        fn output(&self) -> ToolExecution {
            let output = self.journal.iter().find(|entry| entry.0 == OUTPUT).unwrap();
            let value = decode(output.bytes(14).unwrap_or_else(|| panic!("{output:?}")));
            let Some((1, Field::Bytes(value))) = value.first() else { panic!("{value:?}") };
            serde_json::from_slice(value).unwrap()
        }

        fn count(&self, kind: u16) -> usize {
            self.journal.iter().filter(|entry| entry.0 == kind).count()
        }
    }

    /// Returns the next message of an execution, `None` at its end.
    async fn next_message<B>(mut body: Pin<&mut B>, received: &mut Vec<u8>) -> Option<Message>
    where
        B: BodyExt<Data = Bytes>,
    {
        loop {
            if let Some((header, rest)) = received.split_first_chunk::<8>() {
                let header = u64::from_be_bytes(*header);
                if let Some(fields) = rest.get(..header as u32 as usize) {
                    let message = Message((header >> 48) as u16, decode(fields));
                    let length = 8 + fields.len();
                    received.drain(..length);
                    return Some(message);
                }
            }
            let frame = body.frame().await?.ok()?;
            received.extend(frame.into_data().unwrap_or_default());
        }
    }

    static EXECUTED: AtomicU32 = AtomicU32::new(0);

    #[tool("Returns at once")]
    fn quick() -> &'static str {
        EXECUTED.fetch_add(1, Ordering::SeqCst);
        "done"
    }

    #[tool("Returns after a while")]
    async fn slow() -> &'static str {
        EXECUTED.fetch_add(1, Ordering::SeqCst);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        "done"
    }

    #[tool("Never returns")]
    async fn stuck() {
        EXECUTED.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }

    fn input(tool: &dyn Tool, at_most_once: bool, undoes: bool) -> CallInput {
        let definition = tool.definition();
        let mut request = CallRequest::standalone(ToolCall::new("1", definition.name(), "{}"));
        let undone =
            serde_json::json!({ "call": ToolCall::new("0", "book", "{}"), "key": request.attempt.key });
        request.undone = undoes.then(|| serde_json::from_value(undone).unwrap());
        CallInput {
            request,
            definition: Some(definition.hash()).filter(|_| !undoes),
            offered: Vec::new(),
            at_most_once,
            events: None,
            context: Default::default(),
            path: Vec::new(),
            agent: Vec::new(),
        }
    }

    /// The engine cancels a call once or twice, wherever that is, and the worker dies after each entry of the journal: what is executed then
    /// takes the way of the journal, ends, and returns what was recorded.
    #[tokio::test]
    async fn a_cancelled_call_ends_with_its_recorded_outcome_wherever_its_worker_dies() {
        // The journal begins with the input, the step `begin` and its completion: the tool is executed then.
        const EXECUTES: usize = 3;
        for (tools, is_stuck, at_most_once, undoes) in [
            (tools![quick], false, false, false),
            (tools![quick], false, true, false),
            (tools![quick], false, false, true),
            (tools![slow], false, false, true),
            (tools![stuck], true, false, false),
            (tools![stuck], true, true, false),
        ] {
            let input = input(tools.iter().next().unwrap(), at_most_once, undoes);
            let mut cancellations = vec![vec![EXECUTES]];
            // A call that undoes another one begins also if it is cancelled before.
            for first in if undoes { 1 } else { EXECUTES }..EXECUTES + 4 {
                cancellations.push(vec![first]);
                cancellations.extend((first..first + 4).map(|second| vec![first, second]));
            }
            for cancellations in cancellations.iter().filter(|at| !is_stuck || at[0] == EXECUTES) {
                let what =
                    format!("stuck: {is_stuck}, once: {at_most_once}, undoes: {undoes}, {cancellations:?}");
                EXECUTED.store(0, Ordering::SeqCst);
                let begun = Engine::new(&tools, &input, cancellations);
                let mut whole = begun.clone();
                whole.execute(usize::MAX).await;
                assert_eq!(EXECUTED.load(Ordering::SeqCst), 1, "{what}");
                let output = whole.output();
                assert_eq!(output.outcome().is_ok(), !is_stuck, "{what}: {output:?}");
                assert_eq!(whole.count(RUN), whole.count(RUN_COMPLETION), "{what}");
                // Each cancellation before the last step costs one.
                let last = whole.journal.iter().rposition(|entry| entry.0 == RUN_COMPLETION).unwrap();
                let taken = whole.journal[..last].iter().filter(|entry| entry.0 == SIGNAL).count();
                assert_eq!(whole.count(RUN), 2 + taken, "{what}");

                for entries in 1..=whole.journal.len() {
                    EXECUTED.store(0, Ordering::SeqCst);
                    let mut first = begun.clone();
                    first.execute(entries).await;
                    let mut again = first.with_first(first.journal.len());
                    again.execute(usize::MAX).await;
                    let returned = again.output();
                    if first.count(OUTPUT) > 0 {
                        assert_eq!(again.journal, first.journal, "{what}, {entries}");
                    }
                    let is_known = returned.outcome().is_ok();
                    if let Err(error) = returned.outcome() {
                        assert_eq!(error.kind(), ToolErrorKind::OutcomeUnknown, "{what}, {entries}");
                    }
                    assert!(!undoes || is_known, "{what}, {entries}: an undo is not cancelled");
                    if at_most_once {
                        assert!(EXECUTED.load(Ordering::SeqCst) <= 1, "{what}, {entries}");
                    }
                    // And once more, after the end.
                    let mut last = again.clone();
                    last.execute(usize::MAX).await;
                    assert_eq!(last.journal, again.journal, "{what}, {entries}");
                }
            }
        }
    }
}
