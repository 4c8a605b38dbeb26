//! Models made of models: fallback and routing.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream;
use tool_core::memory::InMemoryStore;
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, ChatStream, Cost, Currency, Delta, Fallback, ModelError,
    ModelErrorKind, ModelPrices, Prices, Router, Usage,
};
use tool_core::provider::{JsonText, ModelFuture, ProviderData};
use tool_core::run::Run;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatMemory, ChatModel, Event, Message};

/// A model that fails with the kind that is set, or answers with its name.
#[derive(Clone)]
struct Named {
    name: &'static str,
    failure: Arc<Mutex<Option<ModelErrorKind>>>,
    requests: Arc<AtomicU32>,
    /// Sends a delta before it fails.
    starts: bool,
}

impl Named {
    fn new(name: &'static str) -> Self {
        Self { name, failure: Arc::default(), requests: Arc::default(), starts: false }
    }

    fn fail(&self, kind: impl Into<Option<ModelErrorKind>>) {
        *self.failure.lock().unwrap() = kind.into();
    }

    fn requests(&self) -> u32 {
        self.requests.swap(0, SeqCst)
    }
}

impl ChatModel for Named {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        self.requests.fetch_add(1, SeqCst);
        let failure = *self.failure.lock().unwrap();
        Box::pin(async move {
            match failure {
                Some(kind) => Err(ModelError::new(format!("{} is down", self.name)).with_kind(kind)),
                None => {
                    let response = ChatResponse::new(AssistantMessage::text(self.name));
                    Ok(response.with_usage(Usage::new(100, 10)))
                }
            }
        })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        use futures_util::StreamExt;
        let start = self.starts.then(|| Ok(Delta::Text("He".into())));
        let rest = stream::once(self.chat(request)).map(|response| response.map(Delta::Done));
        ChatStream::new(stream::iter(start).chain(rest))
    }

    fn provider_name(&self) -> Option<&str> {
        Some("acme")
    }

    fn model_name(&self) -> Option<&str> {
        Some(self.name)
    }
}

async fn ask(model: &Fallback) -> Result<ChatResponse, String> {
    model.chat(&ChatRequest::new([Message::user("Hello")])).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_next_model_answers_after_an_outage() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    let model = Fallback::new(a.clone()).or(b.clone());
    let answer = ask(&model).await.unwrap();
    assert_eq!((answer.model.as_deref(), answer.provider.as_deref()), (Some("a"), Some("acme")));
    for kind in [
        ModelErrorKind::Unavailable,
        ModelErrorKind::Timeout,
        ModelErrorKind::RateLimit,
        ModelErrorKind::Quota,
    ] {
        let model = Fallback::new(a.clone()).or(b.clone());
        a.fail(kind);
        let answer = ask(&model).await.unwrap();
        assert_eq!((answer.model.as_deref(), answer.message.model.as_deref()), (Some("b"), Some("b")));
    }
    for kind in [ModelErrorKind::ContextLength, ModelErrorKind::InvalidRequest, ModelErrorKind::Other] {
        let model = Fallback::new(a.clone()).or(b.clone());
        a.fail(kind);
        assert_eq!(ask(&model).await, Err("a is down".into()));
        assert_eq!(ask(&model.clone().on([kind])).await.unwrap().message.text, "b");
    }
    a.fail(None);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_down_is_left_out_until_one_request_has_tried_it() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    let model = Fallback::new(a.clone()).or(b.clone()).retry_after(Duration::from_millis(50));
    a.fail(ModelErrorKind::Unavailable);
    for _ in 0..3 {
        assert_eq!(ask(&model).await.unwrap().message.text, "b");
    }
    assert_eq!((a.requests(), b.requests()), (1, 3));
    tokio::time::sleep(Duration::from_millis(60)).await;
    // While the first request tries it, the second one leaves it out.
    let request = ChatRequest::new([Message::user("Hello")]);
    let trial = model.chat(&request);
    let mut trial = Box::pin(trial);
    assert_eq!(
        futures_util::poll!(&mut trial).map(|answer| answer.unwrap().message.text),
        std::task::Poll::Ready("b".into())
    );
    assert_eq!(ask(&model).await.unwrap().message.text, "b");
    assert_eq!((a.requests(), b.requests()), (1, 2));
    tokio::time::sleep(Duration::from_millis(60)).await;
    a.fail(None);
    assert_eq!(ask(&model).await.unwrap().message.text, "a");
    assert_eq!(ask(&model).await.unwrap().message.text, "a");
}

#[tokio::test]
async fn other_requests_leave_out_a_model_on_trial_and_a_dropped_trial_is_none() {
    let (a, b, is_silent) = (Named::new("a"), Named::new("b"), Arc::new(Mutex::new(false)));
    let model =
        Fallback::new(Silent(a.clone(), Arc::clone(&is_silent))).or(b.clone()).retry_after(Duration::ZERO);
    a.fail(ModelErrorKind::Unavailable);
    assert_eq!(ask(&model).await.unwrap().message.text, "b");
    *is_silent.lock().unwrap() = true;
    a.requests();
    let mut trial = Box::pin(ask(&model));
    assert!(futures_util::poll!(&mut trial).is_pending());
    assert_eq!(ask(&model).await.unwrap().message.text, "b");
    assert_eq!(a.requests(), 1);
    drop(trial);
    *is_silent.lock().unwrap() = false;
    a.fail(None);
    assert_eq!(ask(&model).await.unwrap().message.text, "a");
}

#[tokio::test]
async fn if_all_models_are_down_all_are_tried() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    let model = Fallback::new(a.clone()).or(b.clone()).retry_after(Duration::MAX);
    a.fail(ModelErrorKind::Unavailable);
    b.fail(ModelErrorKind::Unavailable);
    assert_eq!(ask(&model).await, Err("b is down".into()));
    assert_eq!((a.requests(), b.requests()), (1, 1));
    assert_eq!(ask(&model).await, Err("b is down".into()));
    b.fail(None);
    assert_eq!(ask(&model).await.unwrap().message.text, "b");
    assert_eq!((a.requests(), b.requests()), (2, 2));
}

#[tokio::test]
async fn a_response_that_has_started_is_not_asked_for_again() {
    for (starts, expected) in [(false, "b"), (true, "the request to the model failed: a is down")] {
        let a = Named { starts, ..Named::new("a") };
        a.fail(ModelErrorKind::Unavailable);
        let agent = Agent::builder(Fallback::new(a).or(Named::new("b"))).build().unwrap();
        let (mut events, mut text) = (agent.ask("Hello").stream(), String::new());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Done(answer)) => text = answer.to_string(),
                Ok(_) => {}
                Err(error) => text = error.to_string(),
            }
        }
        assert_eq!(text, expected);
    }
}

#[tokio::test]
async fn each_attempt_is_counted_at_the_price_of_its_model() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    a.fail(ModelErrorKind::Unavailable);
    let prices = Prices::from_fn(Currency::USD, |model, _| {
        Some(ModelPrices::new(if model == "a" { 1.0 } else { 2.0 }, 10.0).with_max_output_tokens(1_000))
    });
    let agent = Agent::builder(Fallback::new(a.clone()).or(b)).prices(prices).build().unwrap();
    // The first one at worst: its input and the longest answer. The second one: 100 and 10 tokens.
    let worst = 64 + 16 + 5 + 10_000;
    assert_eq!(agent.ask("Hello").await.unwrap().cost(), Some(Cost::new(worst + 300, Currency::USD)));
    assert_eq!(agent.ask("Hello").await.unwrap().cost(), Some(Cost::new(300, Currency::USD)));
    // What the first attempt may have cost leaves too little for the second.
    let (a, b) = (Named::new("a"), Named::new("b"));
    a.fail(ModelErrorKind::Unavailable);
    let prices = Prices::from_fn(Currency::USD, |_, _| {
        Some(ModelPrices::new(1.0, 10.0).with_max_output_tokens(1_000))
    });
    let agent = Agent::builder(Fallback::new(a).or(b.clone()))
        .prices(prices)
        .limits(|l| l.max_cost(Cost::new(worst + 100, Currency::USD)));
    let error = agent.build().unwrap().ask("Hello").await.unwrap_err();
    assert_eq!(error.run().cost(), Some(Cost::new(worst, Currency::USD)));
    assert_eq!((b.requests(), error.is_resumable()), (0, true));
}

#[tokio::test]
async fn a_router_chooses_a_model_for_each_turn_and_the_run_knows_it() {
    let router = Router::new(|request| if request.messages().len() < 2 { "small" } else { "large" });
    let (small, large) = (ScriptedModel::new().calls("nothing", "{}"), ScriptedModel::new().says("Done."));
    let agent = Agent::builder(router.clone().model("small", small).model("large", large)).build().unwrap();
    let answer = agent.ask("Hello").await.unwrap();
    let models = |messages: &[Message]| -> Vec<_> {
        messages.iter().filter_map(Message::as_assistant).map(|reply| reply.model.clone().unwrap()).collect()
    };
    assert_eq!(models(answer.new_messages()), ["small", "large"]);
    // It is stored.
    let run: Run =
        serde_json::from_str(&serde_json::to_string(&Run::new(answer.new_messages())).unwrap()).unwrap();
    assert_eq!(models(run.messages()), ["small", "large"]);
    let agent = Agent::builder(router.model("big", ScriptedModel::new())).build().unwrap();
    let error = agent.ask("Hello").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request to the model failed: the router chose the model `small`, which it does not have; add it with `model`"
    );
}

#[tokio::test]
async fn an_error_of_another_kind_never_leads_to_the_next_model() {
    for kind in [ModelErrorKind::Unavailable, ModelErrorKind::Authentication] {
        let (a, b) = (Named::new("a"), Named::new("b"));
        a.fail(kind);
        let model = Fallback::new(a).or(b).on([ModelErrorKind::RateLimit]);
        for _ in 0..2 {
            assert_eq!(ask(&model).await, Err("a is down".into()));
        }
    }
}

/// Answers like a model, or not at all while it is silent.
struct Silent(Named, Arc<Mutex<bool>>);

impl ChatModel for Silent {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let response = self.0.chat(request);
        match *self.1.lock().unwrap() {
            true => Box::pin(std::future::pending()),
            false => response,
        }
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        use futures_util::StreamExt;
        let response = stream::once(self.chat(request)).map(|response| response.map(Delta::Done));
        ChatStream::new(stream::iter([Ok(Delta::Text("He".into()))]).chain(response))
    }
}

#[tokio::test]
async fn a_model_is_up_as_soon_as_its_response_starts() {
    let (a, b, is_silent) = (Named::new("a"), Named::new("b"), Arc::new(Mutex::new(false)));
    let model = Fallback::new(Silent(a.clone(), Arc::clone(&is_silent))).or(b).retry_after(Duration::ZERO);
    a.fail(ModelErrorKind::Unavailable);
    assert_eq!(ask(&model).await.unwrap().message.text, "b");
    a.fail(None);
    *is_silent.lock().unwrap() = true;
    let request = ChatRequest::new([Message::user("Hello")]);
    let mut trial = model.stream(&request);
    assert!(matches!(trial.next().await, Some(Ok(Delta::Text(_)))));
    *is_silent.lock().unwrap() = false;
    assert_eq!(ask(&model).await.unwrap().message.text, "a");
    // The stream is no trial any more, so another request can be one.
    a.fail(ModelErrorKind::Unavailable);
    assert_eq!(ask(&model).await.unwrap().message.text, "b");
    a.fail(None);
    assert_eq!(ask(&model).await.unwrap().message.text, "a");
    drop(trial);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_changes_nothing_that_others_found_out() {
    let (a, b, is_silent) = (Named::new("a"), Named::new("b"), Arc::new(Mutex::new(true)));
    let model = Fallback::new(Silent(a.clone(), Arc::clone(&is_silent)))
        .or(b.clone())
        .retry_after(Duration::from_millis(50));
    let silent = |is| *is_silent.lock().unwrap() = is;
    // It was up when the first request began.
    let mut first = Box::pin(ask(&model));
    assert!(futures_util::poll!(&mut first).is_pending());
    silent(false);
    a.fail(ModelErrorKind::Unavailable);
    assert_eq!(ask(&model).await.unwrap().message.text, "b");
    a.requests();
    drop(first);
    assert_eq!(ask(&model).await.unwrap().message.text, "b");
    assert_eq!(a.requests(), 0);
    // Two requests at a model on trial; the second one is forced, because the other model is down.
    tokio::time::sleep(Duration::from_millis(60)).await;
    silent(true);
    let mut trial = Box::pin(ask(&model));
    assert!(futures_util::poll!(&mut trial).is_pending());
    b.fail(ModelErrorKind::Unavailable);
    assert_eq!(ask(&model).await, Err("b is down".into()));
    let mut forced = Box::pin(ask(&model));
    assert!(futures_util::poll!(&mut forced).is_pending());
    drop(trial);
    drop(forced);
    silent(false);
    a.fail(None);
    b.fail(None);
    assert_eq!(ask(&model).await.unwrap().message.text, "a");
}

/// A model that answers with data of its own.
struct Sealing(&'static str);

impl ChatModel for Sealing {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        let replies = request.messages().iter().filter_map(Message::as_assistant);
        let data: Vec<_> = replies.map(|reply| reply.provider_data.is_some()).collect();
        let mut reply = AssistantMessage::text(format!("{} reads {data:?}", self.0));
        reply.provider_data = Some(ProviderData::new("acme", JsonText::serialize(&self.0).unwrap()));
        Box::pin(async move { Ok(ChatResponse::new(reply)) })
    }

    fn model_name(&self) -> Option<&str> {
        Some(self.0)
    }
}

#[tokio::test]
async fn a_model_does_not_receive_the_data_of_another_one_of_the_same_provider() {
    let router =
        Router::new(
            |request: &ChatRequest<'_>| {
                if request.messages().last().unwrap().text() == "large?" { "large" } else { "small" }
            },
        );
    let router = router.model("small", Sealing("m-small")).model("large", Sealing("m-large"));
    let agent = Agent::builder(router).memory(ChatMemory::new(InMemoryStore::new())).build().unwrap();
    let mut answers = Vec::new();
    for question in ["small?", "large?", "small?"] {
        answers.push(agent.ask(question).conversation("c").await.unwrap().text().to_owned());
    }
    assert_eq!(answers, ["m-small reads []", "m-large reads [false]", "m-small reads [true, false]"]);
}
